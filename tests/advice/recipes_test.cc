// Known recipes at full size, with the expected verdicts.
#include <gtest/gtest.h>

#include <algorithm>

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

int64_t optimizer_bytes(const plan::RankMemory& rank) {
  return rank.by_class[static_cast<size_t>(program::MemoryClass::Optimizer)];
}

// The plan fits, and holds the optimizer state: 12 bytes per parameter over all ranks, norms on every tensor
// rank, a little padding.
void expect_fits_with_state(const plan::Report& r) {
  EXPECT_TRUE(r.memory.fits()) << plan::gib(plan::needs(r));
  const config::Parallel& p = r.recipe.parallel;
  int64_t planned = 0;
  for (const plan::RankMemory& rank : r.memory.ranks) planned += optimizer_bytes(rank);
  const double expected =
      12 * static_cast<double>(r.parameters) / static_cast<double>(p.tp * p.dp_shard * p.cp);
  EXPECT_NEAR(static_cast<double>(planned) / expected, 1, 1e-3);
}

// 126 blocks over 8 stages: even stages of 16 are refused because they add up to 128.
TEST(Recipes, UnevenStages) {
  const std::vector<std::string> layout = {"parallel.tp=8", "parallel.sequence_parallel=true",
                                           "parallel.pp=8", "batch.global=2048"};
  std::vector<std::string> even = layout;
  even.push_back("parallel.stages=[16,16,16,16,16,16,16,16]");
  try {
    full_size("llama3-405b", even);
    FAIL() << "128 blocks of 126 were accepted";
  } catch (const base::UserError& e) {
    for (const char* part : {"parallel.stages", "128", "126"})
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
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
  plan::Assumptions a;
  a.cluster = hardware::parse_cluster("64x8 h100");
  const plan::Report report = plan::make_plan(r, a);
  expect_fits_with_state(report);
  // Stages differ by a block at most, so the busiest one waits for about what the formula says.
  double bubble = 0;
  for (const plan::TimeShare& s : report.time.shares)
    if (s.what == "bubble") bubble = s.seconds / report.time.step;
  EXPECT_LT(bubble, 1.1 * 7.0 / (256 + 7));
  EXPECT_GT(bubble, 0.8 * 7.0 / (256 + 7));
  const double bound = search::Bounds(a).exact(r).seconds;
  EXPECT_LE(bound, report.time.step * (1 + 1e-9));
  EXPECT_GT(bound, 0.6 * report.time.step);
}

// The layouts of a published table are legal and fit.
TEST(Recipes, PublishedLayoutsFit) {
  const plan::Report small = on(
      "1x8 h100", "llama3-8b",
      {"parallel.cp=2", "parallel.dp_shard=4", "parallel.zero=1", "data.seq_len=8192", "batch.global=128"});
  expect_fits_with_state(small);
  const plan::Report middle =
      on("8x8 h100", "llama3-70b",
         {"parallel.tp=4", "parallel.sequence_parallel=true", "parallel.pp=4", "parallel.cp=2",
          "parallel.dp_shard=2", "parallel.zero=1", "data.seq_len=8192", "batch.global=128"});
  expect_fits_with_state(middle);
  const plan::Report large = on("128x8 h100", "llama3-405b",
                                {"parallel.tp=8", "parallel.sequence_parallel=true", "parallel.pp=8",
                                 "parallel.cp=2", "parallel.dp_shard=8", "parallel.zero=1",
                                 "data.seq_len=8192", "batch.global=512", "memory.recompute=full"});
  expect_fits_with_state(large);
  const plan::Report experts =
      on("8x8 h100", "mixtral-8x7b",
         {"parallel.pp=4", "parallel.dp_shard=16", "parallel.zero=1", "parallel.ep=8", "batch.global=256",
          "model.moe.capacity_factor=1", "model.moe.pad=true"});
  expect_fits_with_state(experts);
}

// Published layouts of large mixtures of experts, on H100s, in bf16 and without dropped tokens: with room for
// 1.5 times the mean rows they fit. (docs/reference/published_runs.csv: MPF-004, MBR-105 without chunks;
// DeepSeek-V3 with tp 2, pp 16, ep 64.)
TEST(Recipes, PublishedExpertLayoutsFitWithoutDrops) {
  struct Layout {
    const char *cluster, *preset;
    std::vector<std::string> sets;
  };
  const std::vector<Layout> layouts = {
      {"16x8 h100",
       "mixtral-8x22b",
       {"parallel.tp=2", "parallel.sequence_parallel=true", "parallel.pp=8", "parallel.dp_shard=8",
        "parallel.zero=1", "parallel.ep=4", "batch.global=64"}},
      {"32x8 h100",
       "qwen3-235b-a22b",
       {"parallel.tp=2", "parallel.sequence_parallel=true", "parallel.pp=8", "parallel.dp_shard=16",
        "parallel.zero=1", "parallel.ep=32", "batch.global=128"}},
      {"128x8 h100",
       "deepseek-v3",
       {"parallel.tp=2", "parallel.sequence_parallel=true", "parallel.pp=16", "parallel.dp_shard=32",
        "parallel.zero=1", "parallel.ep=64", "batch.global=512"}}};
  for (const Layout& l : layouts) {
    SCOPED_TRACE(l.preset);
    std::vector<std::string> sets = l.sets;
    sets.push_back("model.moe.receive_bound=1.5");
    const plan::Report r = on(l.cluster, l.preset, sets);
    EXPECT_TRUE(r.memory.fits()) << to_text(r);
    // Room for 1.5 times what is used if rows arrive evenly.
    const plan::RankMemory& rank = r.memory.ranks[r.memory.most_loaded];
    EXPECT_NEAR(static_cast<double>(rank.routed_bytes) / static_cast<double>(rank.expected_routed_bytes), 1.5,
                0.01);
  }
}

// For a model with experts the expert axis has its own rung.
TEST(Recipes, ExpertsHaveARung) {
  plan::Assumptions a = small_cluster();
  const Verdict v = decide(small_experts(), a, {.plans = 2, .threads = 2});
  const auto rung =
      std::find_if(v.rungs.begin(), v.rungs.end(), [](const Rung& r) { return r.name == "expert"; });
  ASSERT_NE(rung, v.rungs.end());
  EXPECT_EQ(rung->state, Rung::State::Fits) << rung->text;
  ASSERT_TRUE(rung->report);
  EXPECT_GT(rung->report->recipe.parallel.ep, 1);
}

}  // namespace
}  // namespace quintet::advice
