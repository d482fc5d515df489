// From one GPU to a thousand: which strategy fits which model size.
#include <gtest/gtest.h>

#include "advice/verdict.h"
#include "plan/layout_changes.h"
#include "plan/small_models.h"
#include "plan/text.h"

namespace quintet::advice {
namespace {

config::Recipe full_size(const std::string& preset, int64_t global, int64_t seq) {
  return config::parse("name = \"x\"\n[model]\npreset = \"" + preset +
                       "\"\n[precision]\ncompute = \"bf16\"\n[optimizer]\nlr = 1e-4\n[run]\nsteps = 1\n"
                       "[batch]\nmicro = 1\nglobal = " +
                       std::to_string(global) + "\n[data]\nseq_len = " + std::to_string(seq) + "\n");
}

Verdict verdict_of(const std::string& preset, const char* cluster, int64_t global, int64_t seq = 4096) {
  plan::Assumptions a;
  a.cluster = hardware::parse_cluster(cluster);
  return decide(full_size(preset, global, seq), a, {.plans = 2, .groups = 60, .layouts = 60});
}

const Rung& rung(const Verdict& v, const std::string& name) {
  for (const Rung& r : v.rungs)
    if (r.name == name) return r;
  throw std::runtime_error("no rung " + name);
}

std::string answer_of(const Verdict& v) {
  return v.answer < 0 ? "nothing" : v.rungs[static_cast<size_t>(v.answer)].name;
}

// 7B on one GPU of 24 GB: 18 bytes per parameter do not fit, adapters with frozen weights do.
TEST(Bands, SevenBillionOnOneGpu) {
  const Verdict v = verdict_of("llama2-7b", "1x1 rtx-4090", 8);
  EXPECT_EQ(answer_of(v), "nothing");
  EXPECT_NE(rung(v, "DDP").text.find("6.74B parameters x 18 bytes of state"), std::string::npos)
      << rung(v, "DDP").text;
  EXPECT_TRUE(rung(v, "LoRA").text.starts_with("plan-only, if the task allows it: 13."))
      << rung(v, "LoRA").text;
}

// 7 to 13B on a node of 80 GB GPUs: sharded, not replicated.
TEST(Bands, ThirteenBillionOnANode) {
  const Verdict v = verdict_of("llama2-13b", "1x8 h100", 64);
  EXPECT_EQ(rung(v, "DDP").state, Rung::State::DoesNotFit) << rung(v, "DDP").text;
  EXPECT_EQ(rung(v, "full shard").state, Rung::State::Fits) << rung(v, "full shard").text;
  EXPECT_EQ(answer_of(v), "full shard");
}

// 70B: too large for a node (offload and LoRA are suggested), 32 GPUs hold it fully sharded, and hybrid shard
// needs more than a node has.
TEST(Bands, SeventyBillion) {
  const Verdict node = verdict_of("llama3-70b", "1x8 h100", 64);
  EXPECT_EQ(answer_of(node), "nothing");
  EXPECT_TRUE(rung(node, "offload").text.starts_with("plan-only: ")) << rung(node, "offload").text;
  const Verdict v = verdict_of("llama3-70b", "4x8 h100", 128);
  EXPECT_EQ(rung(v, "DDP").state, Rung::State::DoesNotFit);
  EXPECT_EQ(rung(v, "hybrid shard").state, Rung::State::DoesNotFit) << rung(v, "hybrid shard").text;
  EXPECT_EQ(rung(v, "full shard").state, Rung::State::Fits) << rung(v, "full shard").text;
  EXPECT_EQ(answer_of(v), "full shard");
}

// Above 175B: only tensor and pipeline parallelism, or sharding over everything, fits.
TEST(Bands, FourHundredBillionOnAThousand) {
  const Verdict v = verdict_of("llama3-405b", "128x8 h100", 1024, 8192);
  EXPECT_EQ(rung(v, "DDP").state, Rung::State::DoesNotFit);
  EXPECT_EQ(rung(v, "hybrid shard").state, Rung::State::DoesNotFit);
  EXPECT_EQ(rung(v, "pipeline").state, Rung::State::Fits) << rung(v, "pipeline").text;
  EXPECT_EQ(answer_of(v), "full shard");
}

// 8B on sequences of 15M tokens over 32 H100. Full recompute still keeps 32 block inputs of 491,520 rows; the
// verdict says that these do not fit, and what remains if they are moved to host memory.
TEST(Bands, FifteenMillionTokens) {
  const Verdict v = verdict_of("llama3-8b", "4x8 h100", 1, 15 << 20);
  EXPECT_EQ(answer_of(v), "nothing");
  const Rung& context = rung(v, "context");
  EXPECT_EQ(context.state, Rung::State::DoesNotFit) << context.text;
  EXPECT_NE(context.text.find("of activations"), std::string::npos) << context.text;
  const std::string& offload = rung(v, "offload").text;
  EXPECT_NE(offload.find("32 blocks x 491,520 rows x 4,096 x 2 bytes = 120.0 GiB per device to host memory"),
            std::string::npos)
      << offload;
}

}  // namespace
}  // namespace quintet::advice
