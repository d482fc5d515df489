// Every second of a step belongs to one category.
#include "sim/time_breakdown.h"

#include <gtest/gtest.h>

#include <set>

#include "sim/support.h"

namespace quintet::sim {
namespace {

using program::InstrKind;
using program::testing::all_layouts;
using program::testing::Layout;
using program::testing::Overrides;

TEST(TimeBreakdown, AddUpToTheStepWithAnyOverlap) {
  for (const Layout& layout : all_layouts())
    for (const double hidden : {1.0, 0.6, 0.0}) {
      SCOPED_TRACE(fmt::format("{} hidden {}", layout.name, hidden));
      const compiler::Ranks ranks = testing::compile_representatives(layout.overrides);
      const World world = testing::world_of(ranks);
      const Simulation sim = simulate(world, by_rates(testing::kRates), {.hidden = hidden});
      for (size_t r = 0; r < world.ranks.size(); ++r) {
        const TimeBreakdown shares = time_breakdown(sim, world, r);
        EXPECT_NEAR(shares.total(), sim.end, 1e-9 * sim.end);
        double busy = 0;
        for (size_t k = 0; k < sim.ranks[r].size(); ++k)
          if (instr_of(*world.ranks[r].program, world.ranks[r].expanded->issues[k]).stream ==
              program::kComputeStream)
            busy += sim.ranks[r][k].end - sim.ranks[r][k].start;
        // Computation on other streams is not work of the compute stream.
        EXPECT_GE(shares.busy(), busy * (1 - 1e-9));
        if (ranks.layout.pipeline.empty()) {
          EXPECT_NEAR(shares.bubble, 0, 1e-9 * sim.end);
        }
      }
    }
}

std::set<std::string> waited(const Overrides& overrides) {
  const compiler::Ranks ranks = testing::compile_representatives(overrides);
  const World world = testing::world_of(ranks);
  const Simulation sim = simulate(world, by_rates(testing::kRates));
  std::set<std::string> axes;
  for (size_t r = 0; r < world.ranks.size(); ++r) {
    const TimeBreakdown shares = time_breakdown(sim, world, r);
    for (size_t c = 0; c < shares.waits.size(); ++c)
      if (shares.waits[c] > 0) axes.insert(axes_text(world.ranks[r].program->comms[c]));
  }
  return axes;
}

TEST(TimeBreakdown, NameTheAxesThatAreWaitedFor) {
  using Axes = std::set<std::string>;
  EXPECT_EQ(waited({}), Axes{});
  EXPECT_EQ(waited({"parallel.tp=2"}), Axes{"tp"});
  EXPECT_EQ(waited({"parallel.dp_replicate=2"}), Axes{"dp_replicate"});
  EXPECT_EQ(waited({"parallel.cp=2", "parallel.cp_method=ring"}), Axes{"cp"});
  const Axes both = waited({"parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2"});
  EXPECT_TRUE(both.contains("tp") && both.contains("dp_shard"));
  const Axes pp = waited({"parallel.pp=2", "batch.accumulation=2", "parallel.tp=2"});
  EXPECT_TRUE(pp.contains("tp") && pp.contains("pp"));
}

// A backward pass that begins with a gather over tp of what another stage has not sent yet: a bubble.
TEST(TimeBreakdown, WaitsAreTracedThroughCollectives) {
  const compiler::Ranks ranks = testing::compile_representatives(
      {"parallel.pp=2", "batch.accumulation=2", "parallel.tp=2", "parallel.sequence_parallel=true"});
  const World world = testing::world_of(ranks);
  const Simulation sim = simulate(
      world,
      by_rates({.flops_per_s = 1, .memory_bytes_per_s = 1e9, .sent_bytes_per_s = 1e9, .latency_s = 0}));
  const TimeBreakdown first = time_breakdown(sim, world, 0);
  double waits = 0;
  for (const double w : first.waits) waits += w;
  EXPECT_LT(waits, 1e-3 * sim.end);
  EXPECT_GT(first.bubble, 0.1 * sim.end);
}

// Without overlap a rank does one thing after another.
TEST(TimeBreakdown, WithoutOverlapEverythingIsSerial) {
  const compiler::Ranks ranks = testing::compile_representatives(
      {"parallel.dp_shard=2", "parallel.zero=3", "batch.accumulation=2", "parallel.tp=2"});
  const World world = testing::world_of(ranks);
  const DurationFn duration = by_rates(testing::kRates);
  double all = 0, communication = 0, beside = 0;
  for (const program::Issue& issue : world.ranks[0].expanded->issues) {
    const program::Instr& i = instr_of(*world.ranks[0].program, issue);
    if (i.kind == InstrKind::Free) continue;
    all += duration(*world.ranks[0].program, i);
    if (i.kind == InstrKind::Collective) communication += duration(*world.ranks[0].program, i);
    if (i.kind == InstrKind::Compute && i.stream != program::kComputeStream)
      beside += duration(*world.ranks[0].program, i);
  }
  const double none = simulate(world, duration, {.hidden = 0}).end;
  const double half = simulate(world, duration, {.hidden = 0.5}).end;
  const double full = simulate(world, duration, {.hidden = 1}).end;
  EXPECT_LE(none, all * (1 + 1e-9));
  EXPECT_GE(none, (all - beside) * (1 - 1e-9));  // gradient reductions on their stream may still overlap
  EXPECT_LT(full, half);
  EXPECT_LT(half, none);
  EXPECT_GT(full, all - communication);
}

TEST(TimeBreakdown, AxesOfCommunicators) {
  using layout::Axis;
  program::Communicator c{.channel = {.axes = {{Axis::DpShard, 0}, {Axis::DpShard, 1}, {Axis::Tp}}}};
  EXPECT_EQ(axes_text(c), "dp_shard+tp");
  EXPECT_FALSE(joins_stages(c));
  c.channel = {.purpose = program::Purpose::Up, .places = {0, 1}};
  EXPECT_EQ(axes_text(c), "pp");
  EXPECT_TRUE(joins_stages(c));
  c.channel = {.axes = {{Axis::Pp}, {Axis::Cp}}};
  EXPECT_TRUE(joins_stages(c));
  c.channel = {.axes = {{Axis::DpShard}, {Axis::Tp}}, .purpose = program::Purpose::Overflow};
  EXPECT_EQ(axes_text(c), "ep");
  EXPECT_FALSE(joins_stages(c));
}

}  // namespace
}  // namespace quintet::sim
