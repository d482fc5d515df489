// Dropless experts are planned for the maximum number of rows that can arrive: what is reported about that,
// and what helps.
#include <gtest/gtest.h>

#include "advice/advice.h"
#include "base/error.h"
#include "plan/layout_changes.h"
#include "plan/small_models.h"
#include "plan/text.h"
#include "search/search.h"

namespace quintet::advice {
namespace {

using plan::testing::small_cluster;
using plan::testing::small_experts;
using plan::testing::small_llama;

const plan::RankMemory& fullest(const plan::Report& r) { return r.memory.ranks[r.memory.most_loaded]; }

// Eight ranks with one expert each, of which a token chooses two: all tokens of all ranks may choose one
// rank's; on average a quarter as many rows arrive.
TEST(Experts, ReserveAndExpectedRows) {
  const std::vector<std::string> layout = {"parallel.dp_shard=8", "parallel.zero=1", "parallel.ep=8"};
  plan::Assumptions a = small_cluster();
  const plan::Report r = plan::make_plan(small_experts(layout), a);
  EXPECT_GT(fullest(r).routed_bytes, 0);
  EXPECT_EQ(fullest(r).routed_bytes, 4 * fullest(r).expected_routed_bytes);
  EXPECT_NE(to_text(r).find("of which expert rows: "), std::string::npos) << to_text(r);
  a.imbalance = 2;
  EXPECT_EQ(fullest(plan::make_plan(small_experts(layout), a)).routed_bytes,
            2 * fullest(plan::make_plan(small_experts(layout), a)).expected_routed_bytes);
  // With a padded capacity, sizes are known.
  std::vector<std::string> padded = layout;
  padded.insert(padded.end(), {"model.moe.capacity_factor=1", "model.moe.pad=true"});
  const plan::Report p = plan::make_plan(small_experts(padded), small_cluster());
  EXPECT_EQ(fullest(p).routed_bytes, fullest(p).expected_routed_bytes);
  EXPECT_EQ(to_text(p).find("of which expert rows: "), std::string::npos);
}

// If the reserve is what does not fit, advice says so and offers the mildest capacity that does.
TEST(Experts, AdviceOffersACapacity) {
  const std::vector<std::string> layout = {"parallel.dp_shard=8", "parallel.zero=1", "parallel.ep=8",
                                           "batch.micro=4"};
  plan::Assumptions a = small_cluster();
  const plan::Report whole = plan::make_plan(small_experts(layout), a);
  const int64_t spare = fullest(whole).routed_bytes - fullest(whole).expected_routed_bytes;
  a.cluster.accelerator.memory_bytes = plan::needs(whole) - spare / 2;
  const plan::Report r = plan::make_plan(small_experts(layout), a);
  ASSERT_FALSE(r.memory.fits());
  const std::vector<Advice> advice = advise(r);
  EXPECT_NE(advice_text(r, advice).find("because no token may be dropped"), std::string::npos)
      << advice_text(r, advice);
  int capacities = 0;
  for (const Advice& x : advice) {
    if (x.what.find("capacity") == std::string::npos) continue;
    ++capacities;
    EXPECT_NE(x.what.find("dropped"), std::string::npos);
    std::vector<std::string> sets = layout;
    sets.insert(sets.end(), x.sets.begin(), x.sets.end());
    const plan::Report changed = plan::make_plan(small_experts(sets), a);
    EXPECT_TRUE(changed.memory.fits());
    EXPECT_EQ(plan::needs(changed), x.bytes);
  }
  EXPECT_EQ(capacities, 1);
}

// DeepSeek-V3 with tp 2, pp 16, ep 64 on 1,024 H100s is legal and fits with full recompute, even without
// drops. With all activations kept, the reserve for incoming rows is what does not fit; on devices of 141 GB
// a padded capacity is enough.
TEST(Experts, DeepSeekV3) {
  const auto recipe = [](const std::vector<std::string>& more) {
    std::vector<std::string> sets = {"parallel.tp=2",     "parallel.sequence_parallel=true",
                                     "parallel.pp=16",    "parallel.dp_shard=32",
                                     "parallel.zero=1",   "parallel.ep=64",
                                     "batch.global=512",  "batch.micro=1",
                                     "data.seq_len=4096", "precision.compute=bf16"};
    sets.insert(sets.end(), more.begin(), more.end());
    return config::parse(
        "name = \"x\"\n[model]\npreset = \"deepseek-v3\"\n[optimizer]\nlr = 1e-4\n[run]\nsteps = 1\n", sets);
  };
  plan::Assumptions a;
  const std::vector<std::string> capacity = {"model.moe.capacity_factor=1.25", "model.moe.pad=true"};
  a.cluster = hardware::parse_cluster("128x8 h100");
  for (const bool drops : {false, true}) {
    std::vector<std::string> sets = {"memory.recompute=full"};
    if (drops) sets.insert(sets.end(), capacity.begin(), capacity.end());
    const plan::Report r = plan::make_plan(recipe(sets), a);
    EXPECT_TRUE(r.memory.fits()) << to_text(r);
    EXPECT_EQ(fullest(r).routed_bytes > 8 * fullest(r).expected_routed_bytes, !drops);
  }
  a.cluster = hardware::parse_cluster("128x8 h200");
  const plan::Report dropless = plan::make_plan(recipe({}), a);
  EXPECT_FALSE(dropless.memory.fits());
  EXPECT_NE(expert_reserve_text(dropless).find("as if every token of 64 ranks chose this rank's experts"),
            std::string::npos)
      << expert_reserve_text(dropless) << to_text(dropless);
  const plan::Report padded = plan::make_plan(recipe(capacity), a);
  EXPECT_TRUE(padded.memory.fits()) << to_text(padded);
}

// A search drops tokens only where that is allowed.
TEST(Experts, SearchDropsWhereAllowed) {
  const plan::Assumptions a = small_cluster();
  search::LayoutSpace space;
  space.pp = space.cp = space.tp = space.etp = space.micro = {1};
  space.ep = {1, 8};
  space.zero = {1};
  space.sequence_parallel = {0};
  space.methods = {config::ContextMethod::Ring};
  space.recompute = {config::RecomputeKind::None};
  const config::Recipe recipe = small_experts();
  search::SearchResult found = search::search(recipe, a, space, {.keep = 100});
  ASSERT_FALSE(found.best.empty());
  for (const search::Found& f : found.best) EXPECT_EQ(f.report.recipe.model.moe.capacity_factor, 0);
  const size_t before = found.best.size();
  search::merge(found, search::search(search::with_capacity(recipe, 1.25), a, space, {.keep = 100}), 100);
  EXPECT_GT(found.best.size(), before);
  EXPECT_TRUE(std::is_sorted(found.best.begin(), found.best.end(),
                             [](const search::Found& x, const search::Found& y) {
                               return x.report.time.step < y.report.time.step;
                             }));
  EXPECT_THROW(search::with_capacity(small_llama(), 1.25), base::UserError);
}

}  // namespace
}  // namespace quintet::advice
