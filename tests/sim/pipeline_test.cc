// Pipeline programs take as long as their schedules predict when every stage costs the same.
#include <gtest/gtest.h>

#include <map>

#include "schedule/simulate.h"
#include "sim/support.h"
#include "sim/time_breakdown.h"

namespace quintet::sim {
namespace {

using program::BodyKind;
using program::Instr;
using program::InstrKind;
using program::testing::Overrides;

// Bodies of given durations, regardless of content; the rest of a step, and messages, take no time.
DurationFn by_body(const World& world, double f, double b, double w, double hop = 0) {
  auto seconds = std::make_shared<std::map<const Instr*, double>>();
  for (const Rank& rank : world.ranks) {
    bool splits = false;
    for (const program::Body& body : rank.program->bodies) splits = splits || body.kind == BodyKind::Weight;
    for (const program::Body& body : rank.program->bodies) {
      const double length = body.kind == BodyKind::Forward    ? f
                            : body.kind == BodyKind::Backward ? (splits ? b : b + w)
                            : body.kind == BodyKind::Weight   ? w
                                                              : 0;
      // On its last computation before anything is sent: messages are sent at the end of the body.
      const Instr* last = nullptr;
      for (const Instr& i : body.instrs) {
        if (program::joins_stages(*rank.program, i)) (*seconds)[&i] = hop;
        if (i.kind == InstrKind::Collective && i.collective.kind == program::CollectiveKind::Send &&
            program::joins_stages(*rank.program, i))
          break;
        if (i.kind == InstrKind::Compute && i.stream == program::kComputeStream) last = &i;
      }
      if (last) (*seconds)[last] = length;
      for (const Instr& i : body.instrs)
        if (i.kind == InstrKind::Collective && program::joins_stages(*rank.program, i)) (*seconds)[&i] = hop;
    }
  }
  return [seconds](const program::Program&, const Instr& i) {
    const auto it = seconds->find(&i);
    return it == seconds->end() ? 0 : it->second;
  };
}

Overrides pipeline(const std::string& schedule, int p, int m) {
  return {fmt::format("parallel.pp={}", p), "parallel.schedule=" + schedule,
          fmt::format("batch.accumulation={}", m), fmt::format("model.layers={}", 2 * p)};
}

TEST(Pipeline, TakesWhatTheScheduleTakes) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min"})
    for (const auto& [p, m] : {std::pair{2, 4}, {4, 8}, {4, 12}}) {
      SCOPED_TRACE(fmt::format("{} p {} m {}", name, p, m));
      const compiler::Ranks ranks = testing::compile_representatives(pipeline(name, p, m));
      const World world = testing::world_of(ranks);
      const double f = 1, b = 1.25, w = 0.75;
      const Simulation sim = simulate(world, by_body(world, f, b, w));
      const schedule::Schedule& s = *ranks.pipeline.schedule;
      const schedule::Timeline line = schedule::simulate(s, schedule::Costs::uniform(s, f, b, w));
      EXPECT_NEAR(sim.end, line.makespan, 1e-9 * line.makespan);
      for (size_t r = 0; r < world.ranks.size(); ++r) {
        const TimeBreakdown shares = time_breakdown(sim, world, r);
        EXPECT_NEAR(shares.busy(), line.busy[r], 1e-9 * line.makespan);
        EXPECT_NEAR(shares.bubble, line.makespan - line.busy[r], 1e-9 * line.makespan);
      }
    }
}

// 1F1B loses (p - 1) (f + b) of m + p - 1 rounds; interleaved over v chunks a v-th of it.
TEST(Pipeline, ClosedForms) {
  for (const auto& [p, m] : {std::pair{2, 4}, {4, 8}, {4, 16}}) {
    const compiler::Ranks plain = testing::compile_representatives(pipeline("1f1b", p, m));
    const World world = testing::world_of(plain);
    const Simulation sim = simulate(world, by_body(world, 1, 1, 1));
    for (size_t r = 0; r < world.ranks.size(); ++r)
      EXPECT_NEAR(time_breakdown(sim, world, r).bubble / sim.end, double(p - 1) / (m + p - 1), 1e-9);
    const compiler::Ranks mixed = testing::compile_representatives(pipeline("interleaved", p, m));
    const World chunks = testing::world_of(mixed);
    const Simulation shorter = simulate(chunks, by_body(chunks, 0.5, 0.5, 0.5));
    for (size_t r = 0; r < chunks.ranks.size(); ++r)
      EXPECT_NEAR(time_breakdown(shorter, chunks, r).bubble, 3 * (p - 1) / 2.0, 1e-9);
  }
}

// Transfers are not bubbles: the time that they add is waiting for pp.
TEST(Pipeline, TransfersAreCountedAsSuch) {
  const compiler::Ranks ranks = testing::compile_representatives(pipeline("1f1b", 2, 4));
  const World world = testing::world_of(ranks);
  const Simulation sim = simulate(world, by_body(world, 1, 1, 1, 0.25));
  // Stage 1 waits for the first message.
  const TimeBreakdown last = time_breakdown(sim, world, 1);
  double pp = 0;
  for (size_t c = 0; c < last.waits.size(); ++c)
    if (axes_text(world.ranks[1].program->comms[c]) == "pp") pp += last.waits[c];
  EXPECT_NEAR(last.total(), sim.end, 1e-9);
  EXPECT_GE(pp, 0.25 - 1e-9);
  EXPECT_GT(sim.end, simulate(world, by_body(world, 1, 1, 1)).end);
}

}  // namespace
}  // namespace quintet::sim
