// Known recipes at full size, with the verdicts that they deserve.
#include <gtest/gtest.h>

#include "advice/verdict.h"
#include "base/error.h"
#include "plan/layout_changes.h"
#include "plan/small_models.h"
#include "search/search.h"

namespace quintet::advice {
namespace {

using plan::testing::small_cluster;
using plan::testing::small_experts;

config::Recipe full_size(const std::string& preset, std::vector<std::string> sets) {
  return config::parse("name = \"x\"\n[model]\npreset = \"" + preset +
                           "\"\n[data]\nseq_len = 4096\n[batch]\nmicro = 1\n[precision]\ncompute = \"bf16\"\n"
                           "[optimizer]\nlr = 1e-4\n[memory]\nrecompute = \"selective\"\n[run]\nsteps = 1\n",
                       sets);
}

plan::Report on(const char* cluster, const std::string& preset, std::vector<std::string> sets) {
  plan::Assumptions a;
  a.cluster = hardware::parse_cluster(cluster);
  return plan::make_plan(full_size(preset, std::move(sets)), a);
}

// 126 blocks over 8 stages. The even split 16 x 7 + 14 is refused as no sum of 126 says so; balance
// finds near-equal stages.
TEST(Recipes, UnevenStages) {
  const std::vector<std::string> layout = {"parallel.tp=8", "parallel.sequence_parallel=true",
                                           "parallel.pp=8", "batch.global=2048"};
  std::vector<std::string> even = layout;
  even.push_back("parallel.stages=[16,16,16,16,16,16,16,16]");
  EXPECT_THROW(full_size("llama3-405b", even), base::UserError);
  std::vector<std::string> uneven = layout;
  uneven.push_back("parallel.stages=[15,16,16,16,16,16,16,15]");
  EXPECT_EQ(full_size("llama3-405b", uneven).parallel.stages.size(), 8u);
}

// 70B on 512: tp 8, pp 8, cp 2 leave dp 4; 1,024 sequences are 256 micro-batches, of which a pipeline of
// eight loses (p - 1) / (m + p - 1) = 2.7 %.
TEST(Recipes, SeventyBillionOn512) {
  const config::Recipe r = full_size(
      "llama3-70b", {"parallel.tp=8", "parallel.sequence_parallel=true", "parallel.pp=8", "parallel.cp=2",
                     "parallel.dp_shard=4", "parallel.zero=1", "batch.global=1024"});
  EXPECT_EQ(r.parallel.world(), 512);
  EXPECT_EQ(r.batch.accumulation, 256);
  EXPECT_NEAR(7.0 / (256 + 7), 0.027, 0.0005);
  plan::Assumptions a;
  a.cluster = hardware::parse_cluster("64x8 h100");
  const plan::Report report = plan::make_plan(r, a);
  EXPECT_TRUE(report.memory.fits()) << plan::gib(plan::needs(report));
  EXPECT_LE(search::Bounds(a).exact(r).seconds, report.time.step * 1.0001);
}

// The layouts of a published table are legal and fit.
TEST(Recipes, PublishedLayoutsFit) {
  const plan::Report small = on(
      "1x8 h100", "llama3-8b",
      {"parallel.cp=2", "parallel.dp_shard=4", "parallel.zero=1", "data.seq_len=8192", "batch.global=128"});
  EXPECT_TRUE(small.memory.fits()) << plan::gib(plan::needs(small));
  const plan::Report middle =
      on("8x8 h100", "llama3-70b",
         {"parallel.tp=4", "parallel.sequence_parallel=true", "parallel.pp=4", "parallel.cp=2",
          "parallel.dp_shard=2", "parallel.zero=1", "data.seq_len=8192", "batch.global=128"});
  EXPECT_TRUE(middle.memory.fits()) << plan::gib(plan::needs(middle));
  const plan::Report large = on("128x8 h100", "llama3-405b",
                                {"parallel.tp=8", "parallel.sequence_parallel=true", "parallel.pp=8",
                                 "parallel.cp=2", "parallel.dp_shard=8", "parallel.zero=1",
                                 "data.seq_len=8192", "batch.global=512", "memory.recompute=full"});
  EXPECT_TRUE(large.memory.fits()) << plan::gib(plan::needs(large));
  const plan::Report experts =
      on("8x8 h100", "mixtral-8x7b",
         {"parallel.pp=4", "parallel.dp_shard=16", "parallel.zero=1", "parallel.ep=8", "batch.global=256",
          "model.moe.capacity_factor=1", "model.moe.pad=true"});
  EXPECT_TRUE(experts.memory.fits()) << plan::gib(plan::needs(experts));
}

// For a model with experts the expert axis has a rung of its own.
TEST(Recipes, ExpertsHaveARung) {
  plan::Assumptions a = small_cluster();
  const Verdict v = decide(small_experts(), a, {.plans = 2, .threads = 2});
  for (const Rung& r : v.rungs)
    if (r.name == "expert") {
      EXPECT_EQ(r.state, Rung::State::Fits) << r.text;
      ASSERT_TRUE(r.report);
      EXPECT_GT(r.report->recipe.parallel.ep, 1);
    }
}

}  // namespace
}  // namespace quintet::advice
