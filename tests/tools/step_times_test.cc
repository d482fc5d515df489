// The breakdown of a simulated step from its trace must match the simulator's.
#include "tools/step_times.h"

#include <gtest/gtest.h>

#include "sim/support.h"
#include "sim/time_breakdown.h"
#include "sim/trace.h"

namespace quintet::tools {
namespace {

using program::testing::all_layouts;
using program::testing::Layout;

TEST(StepTimes, OfASimulatedStepAreItsShares) {
  int compared = 0;
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const compiler::Ranks ranks = sim::testing::compile_representatives(layout.overrides);
    const sim::World world = sim::testing::world_of(ranks);
    const sim::Simulation sim = simulate(world, sim::by_rates(sim::testing::kRates));
    const std::vector<observe::RankTrace> traces = make_trace(sim, world);
    for (size_t r = 0; r < traces.size(); ++r) {
      const StepTimes t = step_times(*world.ranks[r].program, *world.ranks[r].expanded, traces[r]);
      const sim::TimeBreakdown shares = time_breakdown(sim, world, r);
      const double rounding = 1e-9 * static_cast<double>(sim.ranks[r].size()) + 1e-9 * sim.end;
      EXPECT_NEAR(t.matmul, shares.matmul, rounding);
      EXPECT_NEAR(t.attention, shares.attention, rounding);
      EXPECT_NEAR(t.optimizer, shares.optimizer, rounding);
      double sum = t.kernels() + t.load + t.idle;
      for (const auto& calls : t.comms)
        for (const StepTimes::Collective& c : calls) {
          EXPECT_LE(c.exposed, c.seconds + rounding);
          sum += c.exposed;
        }
      EXPECT_NEAR(sum, t.span, rounding);
      // In a pipeline, waits for other stages do not appear in a rank's own trace.
      if (!ranks.layout.pipeline.empty()) continue;
      ASSERT_EQ(t.comms.size(), shares.waits.size());
      for (size_t c = 0; c < t.comms.size(); ++c) {
        double exposed = 0;
        for (const StepTimes::Collective& call : t.comms[c]) exposed += call.exposed;
        EXPECT_NEAR(exposed, shares.waits[c], rounding) << world.ranks[r].program->comms[c].name();
        compared += exposed > 0;
      }
      EXPECT_NEAR(t.idle, 0, rounding);
    }
  }
  EXPECT_GT(compared, 20);
}

// The shortest call over all members is the transfer time; the rest of a wait is due to a late member.
TEST(StepTimes, LateIsNotSlow) {
  EXPECT_EQ(transfer_seconds({.seconds = 9, .exposed = 8}, 2), 2);
  EXPECT_EQ(transfer_seconds({.seconds = 9, .exposed = 1}, 2), 1);
}

}  // namespace
}  // namespace quintet::tools
