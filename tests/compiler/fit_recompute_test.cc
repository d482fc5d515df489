#include "compiler/fit_recompute.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "compiler/compile.h"
#include "program/verify.h"
#include "support/small_recipe.h"

namespace quintet::compiler {
namespace {

config::Recipe tiny(const std::vector<std::string>& overrides) {
  return test::small_recipe({"model.layers=3", "batch.micro=2", "batch.accumulation=4", "loss.chunk=8"},
                            overrides);
}

int64_t arena(const config::Recipe& recipe, const CompileOptions& options = {}) {
  return compile(recipe, options).program.arena_bytes;
}

config::Recipe with_budget(config::Recipe recipe, int64_t bytes) {
  recipe.memory = {};
  recipe.memory.recompute = config::RecomputeKind::Fit;
  recipe.memory.budget = base::Bytes(bytes);
  return recipe;
}

// The smallest accepted budget, as suggested when a smaller one is rejected.
int64_t least_budget(const config::Recipe& recipe) {
  try {
    fit_recompute(with_budget(recipe, 1), {});
  } catch (const base::UserError& e) {
    const std::string text = e.what(), key = "memory.budget = ";
    if (const size_t at = text.find(key); at != std::string::npos)
      return std::stoll(text.substr(at + key.size()));
  }
  ADD_FAILURE() << "a budget of one byte must be rejected with a suggestion";
  return 0;
}

const std::vector<std::vector<std::string>>& layouts() {
  static const std::vector<std::vector<std::string>> kLayouts = {
      {},
      {"parallel.dp_shard=2", "parallel.zero=3"},
      {"parallel.tp=2", "parallel.sequence_parallel=true"},
      {"parallel.pp=2", "model.layers=4"},
      {"parallel.pp=2", "model.layers=4", "parallel.schedule=zb-v"},
      {"parallel.pp=2", "model.layers=4", "parallel.schedule=interleaved", "parallel.tp=2"},
      {"model.vocab=259", "parallel.tp=2"},
  };
  return kLayouts;
}

TEST(FitRecompute, EveryRankKeepsToTheBudgetAndLessMemoryTakesMoreTime) {
  for (const auto& overrides : layouts()) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(overrides, " ")));
    const config::Recipe recipe = tiny(overrides);
    int64_t most = 0;
    const int64_t least = least_budget(recipe);
    for (int r = 0; r < recipe.parallel.world(); ++r)
      most = std::max(most, arena(recipe, {.rank = base::RankId(r)}));
    ASSERT_LE(least, most);
    int64_t peak = most, nanos = 0;
    for (int i = 0; i <= 4; ++i) {
      const int64_t budget = most - (most - least) * i / 4;
      const config::Recipe fitted = with_budget(recipe, budget);
      const Fit fit = fit_recompute(fitted, {});
      EXPECT_GE(fit.nanos, nanos) << budget;
      nanos = fit.nanos;
      int64_t now = 0;
      for (int r = 0; r < recipe.parallel.world(); ++r) {
        const bool alone = r + 1 == recipe.parallel.world();  // the last rank computes the fit on its own
        const Compiled c =
            compile(fitted, {.rank = base::RankId(r), .fit = alone ? std::nullopt : std::optional(fit)});
        EXPECT_LE(c.program.arena_bytes, budget);
        EXPECT_EQ(c.fit->marks, fit.marks) << "ranks must agree";
        EXPECT_NO_THROW(program::verify(c.program, c.step));
        now = std::max(now, c.program.arena_bytes);
      }
      if (budget < most) {
        EXPECT_GT(nanos, 0);
      }
      EXPECT_EQ(*std::max_element(fit.planned.begin(), fit.planned.end()), now);
      EXPECT_LE(now, peak) << "a smaller budget must not give a larger peak";
      peak = now;
    }
  }
}

TEST(FitRecompute, NothingIsRecomputedWhenAllFits) {
  const config::Recipe recipe = tiny({});
  const int64_t bytes = arena(recipe);
  const Fit fit = fit_recompute(with_budget(recipe, bytes), {});
  EXPECT_EQ(fit.nanos, 0);
  EXPECT_EQ(std::count(fit.marks.begin(), fit.marks.end(), 1), 0);
  EXPECT_EQ(fit.text.substr(0, 21), "nothing is recomputed");
  EXPECT_GT(fit_recompute(with_budget(recipe, bytes - 1), {}).nanos, 0);
}

TEST(FitRecompute, TooLittleIsRefusedWithTheNumbers) {
  const config::Recipe recipe = tiny({"parallel.pp=2"});
  try {
    compile(with_budget(recipe, 100000), {});
    FAIL() << "100000 bytes were accepted";
  } catch (const base::UserError& e) {
    const std::string text = e.what();
    for (const char* part : {"97.7 KiB (100000 bytes) is too small", "mostly", "activations", "batch.micro"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
  const int64_t needed = least_budget(recipe);
  EXPECT_THROW(compile(with_budget(recipe, needed - 1), {}), base::UserError);
  EXPECT_NO_THROW(compile(with_budget(recipe, needed), {}));  // the suggestion is accepted
}

// All policies of a small model, level by level of each block: with two blocks no policy that fits is faster,
// with three none is faster by more than one step.
TEST(FitRecompute, IsAsQuickAsTheBestOfAllPolicies) {
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"model.layers=2"}, {"model.layers=3", "parallel.dp_shard=2", "parallel.zero=3"}}) {
    const config::Recipe recipe = tiny(overrides);
    const Compiled nothing = compile(recipe, {.disabled = {OptionalPass::Pack}});
    const passes::Prices prices = rough_prices(nothing);
    std::vector<std::vector<passes::Level>> blocks;
    for (int label = 1; label + 1 < nothing.logical.num_blocks; ++label)
      blocks.push_back(passes::recompute_levels(nothing.logical, label, prices));
    struct Policy {
      int64_t arena, nanos;
    };
    std::vector<Policy> policies;
    std::vector<size_t> levels(blocks.size(), 0);
    for (bool more = true; more;) {
      Fit trial{.marks = passes::Marks(nothing.logical.nodes().size(), 0)};
      int64_t nanos = 0;
      for (size_t b = 0; b < blocks.size(); ++b) {
        nanos += blocks[b][levels[b]].nanos;
        for (const size_t node : blocks[b][levels[b]].nodes) trial.marks[node] = 1;
      }
      policies.push_back({arena(recipe, {.fit = trial}), nanos});
      size_t b = 0;
      while (b < levels.size() && ++levels[b] == blocks[b].size()) levels[b++] = 0;
      more = b < levels.size();
    }
    int64_t most_expensive = 0;  // most expensive step between levels
    for (size_t l = 1; l < blocks[0].size(); ++l)
      most_expensive = std::max(most_expensive, blocks[0][l].nanos - blocks[0][l - 1].nanos);
    const int64_t least = least_budget(recipe);
    for (int i = 0; i <= 10; ++i) {
      const int64_t budget = least + (nothing.program.arena_bytes - least) * i / 10;
      int64_t best = std::numeric_limits<int64_t>::max();
      for (const Policy& p : policies)
        if (p.arena <= budget) best = std::min(best, p.nanos);
      const int64_t found = fit_recompute(with_budget(recipe, budget), {}).nanos;
      if (blocks.size() == 2)
        EXPECT_EQ(found, best) << budget;
      else
        EXPECT_LE(found, best + most_expensive) << budget;
    }
  }
}

}  // namespace
}  // namespace quintet::compiler
