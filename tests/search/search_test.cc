// The search against brute force on small spaces, and its text.
#include "search/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/print.h"
#include "plan/layout_changes.h"
#include "plan/small_models.h"

namespace quintet::search {
namespace {

using plan::testing::small_cluster;
using plan::testing::small_llama;

LayoutSpace small_space() {
  LayoutSpace s;
  s.pp = {1, 2};
  s.cp = {1, 2};
  s.tp = {1, 2};
  s.ep = s.etp = {1};
  s.sequence_parallel = {1, 0};
  s.methods = {config::ContextMethod::Ring};
  s.micro = {1, 2};
  s.zero = {0, 1, 3};
  s.recompute = {config::RecomputeKind::None, config::RecomputeKind::Full};
  s.schedules = {"1f1b", "zb-h1"};
  s.chunks = {2};
  return s;
}

// All plans of a space that fit, fastest first.
std::vector<plan::Report> brute_force(const config::Recipe& recipe, const plan::Assumptions& a,
                                      const LayoutSpace& space) {
  std::vector<plan::Report> fit;
  for (std::optional<plan::Report>& r : plan::plan_all(legal_recipes(recipe, space, a.cluster.world()), a, 2))
    if (r && r->memory.fits()) fit.push_back(std::move(*r));
  std::stable_sort(fit.begin(), fit.end(),
                   [](const plan::Report& x, const plan::Report& y) { return x.time.step < y.time.step; });
  return fit;
}

void expect_same(const std::vector<Found>& found, const std::vector<plan::Report>& all) {
  ASSERT_FALSE(found.empty());
  ASSERT_GE(all.size(), found.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_DOUBLE_EQ(found[i].report.time.step, all[i].time.step) << layout_words(found[i].report.recipe);
}

// The layouts of a space that no other beats in both time and memory, by comparing all plans.
TEST(Search, ParetoSetEqualsBruteForce) {
  const plan::Assumptions a = small_cluster();
  const config::Recipe recipe = small_llama();
  const std::vector<plan::Report> all = brute_force(recipe, a, small_space());
  std::set<std::pair<double, int64_t>> expected;
  for (const plan::Report& r : all)
    if (std::none_of(all.begin(), all.end(), [&](const plan::Report& o) {
          const bool both = o.time.step <= r.time.step && plan::needs(o) <= plan::needs(r);
          return both && (o.time.step < r.time.step || plan::needs(o) < plan::needs(r));
        }))
      expected.emplace(r.time.step, plan::needs(r));
  ASSERT_GE(expected.size(), 2u) << "an example in which memory is traded for time is needed";
  const SearchResult s = search(recipe, a, small_space(), {.keep = 1, .plans = 100000, .pareto = true});
  std::set<std::pair<double, int64_t>> found;
  for (const plan::Report& r : s.pareto) found.emplace(r.time.step, plan::needs(r));
  EXPECT_EQ(found, expected);
  EXPECT_EQ(found.size(), s.pareto.size()) << "each once";
  EXPECT_TRUE(s.pareto_proven);
  EXPECT_LT(s.planned, static_cast<int>(all.size())) << "bounds discard some";
  EXPECT_NE(pareto_text(s).find("the set is complete"), std::string::npos) << pareto_text(s);
  // A search for the fastest alone does not claim to know the set.
  EXPECT_FALSE(search(recipe, a, small_space(), {.keep = 1, .plans = 100000}).pareto_proven);
}

TEST(Search, EqualsBruteForce) {
  plan::Assumptions a = small_cluster();
  const config::Recipe recipe = small_llama();
  const std::vector<plan::Report> all = brute_force(recipe, a, small_space());
  const SearchResult s = search(recipe, a, small_space(), {.keep = 3, .plans = 100000});
  expect_same(s.best, all);
  EXPECT_TRUE(s.proven);
  EXPECT_DOUBLE_EQ(s.bound_seconds, s.best.front().report.time.step);
  // Bounds avoid most of the work.
  EXPECT_LT(static_cast<size_t>(s.planned), all.size() / 2);
}

// With memory that holds only a part of the space.
TEST(Search, EqualsBruteForceWhereMemoryIsShort) {
  plan::Assumptions a = small_cluster();
  const config::Recipe recipe = small_llama();
  const std::vector<plan::Report> all = brute_force(recipe, a, small_space());
  std::vector<int64_t> bytes;
  for (const plan::Report& r : all) bytes.push_back(plan::needs(r));
  std::sort(bytes.begin(), bytes.end());
  for (const size_t share : {size_t{20}, size_t{4}}) {
    a.cluster.accelerator.memory_bytes = bytes[bytes.size() / share];
    const SearchResult s = search(recipe, a, small_space(), {.keep = 2, .plans = 100000});
    expect_same(s.best, brute_force(recipe, a, small_space()));
    EXPECT_GT(s.too_large, 0);
  }
}

TEST(Search, ThreadsDoNotChangeTheAnswer) {
  const plan::Assumptions a = small_cluster();
  const config::Recipe recipe = small_llama();
  const SearchResult one = search(recipe, a, small_space(), {.keep = 3, .plans = 24, .threads = 1}),
                     two = search(recipe, a, small_space(), {.keep = 3, .plans = 24, .threads = 2});
  ASSERT_EQ(one.best.size(), two.best.size());
  for (size_t i = 0; i < one.best.size(); ++i)
    EXPECT_EQ(one.best[i].report.recipe, two.best[i].report.recipe);
  EXPECT_EQ(one.planned, two.planned);
  EXPECT_EQ(one.too_slow, two.too_slow);
}

// When the budget of plans is exhausted, the rest is reported by its bound.
TEST(Search, SaysWhatItDidNotPlan) {
  const plan::Assumptions a = small_cluster();
  const SearchResult s = search(small_llama(), a, small_space(), {.keep = 2, .plans = 1});
  EXPECT_EQ(s.planned, 1);
  EXPECT_FALSE(s.proven);
  EXPECT_LT(s.bound_seconds, s.best.front().report.time.step);
  EXPECT_NE(to_text(s, a).find("layouts that were not planned take at least"), std::string::npos);
}

TEST(Search, NothingFits) {
  plan::Assumptions a = small_cluster();
  a.cluster.accelerator.memory_bytes = 4 << 20;
  const SearchResult s = search(small_llama(), a, small_space(), {.keep = 2, .plans = 50});
  EXPECT_TRUE(s.best.empty());
  EXPECT_NE(to_text(s, a).find("nothing fits into the 0.0 GiB of a device"), std::string::npos);
}

// A found recipe reads back unchanged.
TEST(Search, FoundRecipesRoundTrip) {
  const plan::Assumptions a = small_cluster();
  const std::vector<Found> best = search(small_llama(), a, small_space(), {.keep = 5, .plans = 16}).best;
  EXPECT_EQ(best.size(), 5u);
  for (const Found& f : best) EXPECT_EQ(config::parse(config::to_toml(f.report.recipe)), f.report.recipe);
}

TEST(Search, ExplainsByPlans) {
  const plan::Assumptions a = small_cluster();
  const plan::Report r =
      plan::make_plan(small_llama({"parallel.tp=2", "parallel.sequence_parallel=true", "parallel.pp=2",
                                   "parallel.schedule=zb-h1", "parallel.dp_shard=2", "parallel.zero=1",
                                   "memory.recompute=full"}),
                      a);
  const std::vector<std::string> reasons = explain(r);
  ASSERT_EQ(reasons.size(), 6u);
  EXPECT_TRUE(reasons[0].starts_with("tp 2: with tp 1 a step takes ")) << reasons[0];
  EXPECT_TRUE(reasons[1].starts_with("pp 2: with pp 1 a step takes ")) << reasons[1];
  EXPECT_TRUE(reasons[2].starts_with("sequence parallelism: with no sequence parallelism a step takes "))
      << reasons[2];
  EXPECT_TRUE(reasons[3].starts_with("schedule zb-h1: with schedule 1f1b a step takes ")) << reasons[3];
  EXPECT_TRUE(reasons[4].starts_with("zero 1: with zero 0 a step takes ")) << reasons[4];
  EXPECT_TRUE(reasons[5].starts_with("recompute full: with recompute selective a step takes ")) << reasons[5];
}

TEST(LayoutSpace, Words) {
  EXPECT_EQ(layout_words(small_llama({"parallel.tp=2", "parallel.sequence_parallel=true", "parallel.pp=2",
                                      "parallel.dp_replicate=2", "parallel.dp_shard=2", "parallel.zero=3"})),
            "tp 2 with sequence parallelism, pp 2 (1f1b), dp 2 x 2 (zero 3 over 2), micro 1 x 8");
  EXPECT_EQ(layout_words(small_llama()), "micro 1 x 32");
}

// All settings of small_space() on 8 devices that the rules accept, by writing each of them down.
std::set<std::string> legal_by_hand() {
  std::set<std::string> legal;
  const auto add = [&](std::vector<std::string> sets) {
    try {
      legal.insert(config::to_toml(small_llama(sets)));
    } catch (const config::RecipeError&) {
    }
  };
  const auto with = [](std::vector<std::string> sets, const std::vector<std::string>& more) {
    sets.insert(sets.end(), more.begin(), more.end());
    return sets;
  };
  for (const int pp : {1, 2})
    for (const int cp : {1, 2})
      for (const int tp : {1, 2})
        for (const int replicate : {1, 2, 4, 8})
          for (const int zero : {0, 1, 3})
            for (const int micro : {1, 2})
              for (const char* recompute : {"none", "full"}) {
                const int dp = 8 / (pp * cp * tp);
                if (dp % replicate != 0 || (zero == 0 && replicate != dp)) continue;
                std::vector<std::string> sets = {fmt::format("parallel.dp_replicate={}", replicate),
                                                 fmt::format("parallel.dp_shard={}", dp / replicate),
                                                 fmt::format("parallel.zero={}", zero),
                                                 fmt::format("parallel.tp={}", tp),
                                                 fmt::format("parallel.cp={}", cp),
                                                 fmt::format("parallel.pp={}", pp),
                                                 fmt::format("batch.micro={}", micro),
                                                 fmt::format("memory.recompute={}", recompute)};
                if (cp > 1) sets.push_back("parallel.cp_method=ring");
                for (const char* schedule : {"1f1b", "zb-h1"}) {
                  if (pp == 1 && schedule == std::string("zb-h1")) continue;
                  const auto scheduled =
                      pp == 1 ? sets : with(sets, {fmt::format("parallel.schedule={}", schedule)});
                  add(scheduled);
                  if (tp > 1) add(with(scheduled, {"parallel.sequence_parallel=true"}));
                }
              }
  return legal;
}

TEST(LayoutSpace, EveryLayoutOnceAndLegal) {
  const std::vector<config::Recipe> all = legal_recipes(small_llama(), small_space(), 8);
  std::set<std::string> seen;
  for (const config::Recipe& r : all) {
    EXPECT_EQ(r.parallel.world(), 8);
    EXPECT_TRUE(config::problems_of(r).empty()) << layout_words(r);
    EXPECT_TRUE(seen.insert(config::to_toml(r)).second) << layout_words(r);
  }
  const std::set<std::string> expected = legal_by_hand();
  EXPECT_EQ(seen.size(), expected.size());
  for (const std::string& recipe : expected) EXPECT_TRUE(seen.contains(recipe)) << recipe;
}

}  // namespace
}  // namespace quintet::search
