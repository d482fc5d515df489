// One rank of every pipeline stage represents the world.
#include <gtest/gtest.h>

#include "sim/support.h"

namespace quintet::sim {
namespace {

using program::testing::all_layouts;
using program::testing::Layout;

// Whether all ranks of a stage also wait for the same instructions. Padding at the end of a group's last
// range is zeroed there, and waits for earlier reads of it.
bool alike(const program::testing::World& all, const World& few) {
  for (size_t r = 0; r < all.programs.size(); ++r) {
    const Rank& like = few.ranks[static_cast<size_t>(few.like(all.programs[r].rank))];
    if (all.expanded[r].waits != like.expanded->waits ||
        all.expanded[r].issues.size() != like.expanded->issues.size())
      return false;
  }
  return true;
}

TEST(Representatives, RunAsInTheWholeWorld) {
  int exact = 0;
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const program::testing::World all = program::testing::compile_world(layout.overrides);
    const compiler::Ranks few = testing::compile_representatives(layout.overrides);
    const World world = testing::world_of(few);
    const Simulation whole = simulate(testing::world_of(all), by_rates(testing::kRates));
    const Simulation part = simulate(world, by_rates(testing::kRates));
    if (!alike(all, world)) {
      EXPECT_NEAR(part.end, whole.end, 0.05 * whole.end);
      continue;
    }
    ++exact;
    EXPECT_EQ(part.end, whole.end);
    for (size_t i = 0; i < few.program.size(); ++i) {
      const auto& expected = whole.ranks[few.program[i].program.rank.index()];
      ASSERT_EQ(part.ranks[i].size(), expected.size());
      for (size_t k = 0; k < expected.size(); ++k) {
        ASSERT_EQ(part.ranks[i][k].start, expected[k].start) << "issue " << k;
        ASSERT_EQ(part.ranks[i][k].end, expected[k].end) << "issue " << k;
      }
    }
  }
  EXPECT_GT(exact, static_cast<int>(all_layouts().size()) / 2);
}

// All ranks of a stage run the same instructions for the same time.
TEST(Representatives, RanksOfAStageAreAlike) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const program::testing::World all = program::testing::compile_world(layout.overrides);
    const compiler::Ranks few = testing::compile_representatives(layout.overrides);
    const World world = testing::world_of(few);
    const DurationFn duration = by_rates(testing::kRates);
    for (size_t r = 0; r < all.programs.size(); ++r) {
      const Rank& like = world.ranks[static_cast<size_t>(world.like(all.programs[r].rank))];
      ASSERT_EQ(all.expanded[r].issues.size(), like.expanded->issues.size());
      for (size_t k = 0; k < like.expanded->issues.size(); ++k) {
        const program::Instr& mine = instr_of(all.programs[r], all.expanded[r].issues[k]);
        const program::Instr& its = instr_of(*like.program, like.expanded->issues[k]);
        ASSERT_EQ(mine.op, its.op);
        ASSERT_EQ(duration(all.programs[r], mine), duration(*like.program, its));
      }
    }
  }
}

}  // namespace
}  // namespace quintet::sim
