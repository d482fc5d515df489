#include "sim/simulate.h"

#include <gtest/gtest.h>

#include "program/ledger.h"
#include "sim/support.h"

namespace quintet::sim {
namespace {

using namespace program::testing;
using program::Communicator;
using program::Instr;
using program::InstrKind;
using program::Issue;
using program::kComputeStream;
using program::Program;
using program::RankId;
using program::Wait;
using testing::world_of;
using World = program::testing::World;

Simulation run(const World& world, const Rates& rates) { return simulate(world_of(world), by_rates(rates)); }

TEST(Simulate, OneRankTakesTheSumOfItsInstructions) {
  const World world = compile_world({"batch.accumulation=2"});
  const Rates rates{.flops_per_s = 3, .memory_bytes_per_s = 2};
  const Simulation sim = run(world, rates);
  double sum = 0;
  for (size_t k = 0; k < world.expanded[0].issues.size(); ++k) {
    EXPECT_EQ(sim.ranks[0][k].start, sim.ranks[0][k].ready);
    sum += by_rates(rates)(world.programs[0], instr_of(world.programs[0], world.expanded[0].issues[k]));
  }
  EXPECT_DOUBLE_EQ(sim.end, sum);
  EXPECT_GT(sim.end, program::make_ledger(world.programs[0], world.expanded[0]).flops / 3);
}

// Invariants of any result: streams in order, waits respected, members concurrent.
TEST(Simulate, KeepsOrderWaitsAndMeetings) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const World world = compile_world(layout.overrides);
    const Simulation sim = run(world, {.flops_per_s = 7, .sent_bytes_per_s = 0.3, .latency_s = 11});
    std::map<std::pair<std::string, std::vector<RankId>>, std::map<size_t, std::vector<Span>>> met;
    for (size_t r = 0; r < world.programs.size(); ++r) {
      const Program& p = world.programs[r];
      std::vector<std::vector<double>> ends(p.streams.size());
      for (size_t k = 0; k < world.expanded[r].issues.size(); ++k) {
        const Issue& issue = world.expanded[r].issues[k];
        const Instr& instr = instr_of(p, issue);
        const Span& span = sim.ranks[r][k];
        auto& own = ends[instr.stream.index()];
        EXPECT_EQ(span.ready, own.empty() ? 0 : own.back());
        EXPECT_GE(span.start, span.ready);
        EXPECT_GE(span.end, span.start);
        EXPECT_EQ(waited_for(world_of(world).ranks[r], sim.ranks[r], k).valid(), span.start > span.ready);
        for (int w = 0; w < issue.num_waits; ++w) {
          const Wait& wait = world.expanded[r].waits[static_cast<size_t>(issue.first_wait + w)];
          EXPECT_GE(span.start, ends[wait.stream.index()][static_cast<size_t>(wait.position)]);
        }
        own.push_back(span.end);
        if (instr.kind != InstrKind::Collective) continue;
        const Communicator& c = p.comms[instr.collective.comm.index()];
        met[{c.name(), c.members}][r].push_back(span);
      }
    }
    for (const auto& [group, by_rank] : met)
      for (const auto& [r, spans] : by_rank)
        for (size_t i = 0; i < spans.size(); ++i) {
          EXPECT_EQ(spans[i].start, by_rank.begin()->second[i].start);
          EXPECT_EQ(spans[i].end, by_rank.begin()->second[i].end);
        }
  }
}

// Long sequences on ranks of an accelerator's rates: 500 TFLOP/s, 3 TB/s, links of 50 GB/s.
const Rates kAccelerator{
    .flops_per_s = 500e12, .memory_bytes_per_s = 3e12, .sent_bytes_per_s = 50e9, .latency_s = 10e-6};

Overrides long_ring(int cp, int64_t seq_len) {
  return {"model.embed=4096",
          "model.ffn=14336",
          "model.heads=32",
          "model.kv_heads=8",
          "model.head_dim=128",
          fmt::format("data.seq_len={}", seq_len),
          fmt::format("parallel.cp={}", cp),
          "parallel.cp_method=ring",
          "precision.compute=bf16",
          "batch.accumulation=2"};
}

struct Exposed {
  int hops = 0;
  double hops_stalled = 0;  // seconds that hops waited
  double stalled = 0;       // seconds that any computation waited for the ring
};

Exposed exposed(const World& world, const Simulation& sim) {
  Exposed sum;
  for (size_t r = 0; r < world.programs.size(); ++r)
    for (size_t k = 0; k < world.expanded[r].issues.size(); ++k) {
      const Instr& instr = instr_of(world.programs[r], world.expanded[r].issues[k]);
      if (instr.stream != kComputeStream) continue;
      const Span& span = sim.ranks[r][k];
      const program::StreamId stream = waited_for(world_of(world).ranks[r], sim.ranks[r], k);
      if (stream.valid() && world.programs[r].streams[stream.index()].name.starts_with("cp."))
        sum.stalled += span.stall();
      if (instr.op != &graph::kAttentionHop && instr.op != &graph::kAttentionHopDx) continue;
      ++sum.hops;
      sum.hops_stalled += span.stall();
    }
  return sum;
}

TEST(Simulate, RingTransfersOverlapTheHopsOfLongSequences) {
  for (const int cp : {2, 4, 8}) {
    SCOPED_TRACE(cp);
    const World world = compile_world(long_ring(cp, 16384 * cp));
    const Exposed e = exposed(world, run(world, kAccelerator));
    EXPECT_EQ(e.hops, 2 * 2 * 2 * cp * cp);  // forward and backward, micro-batches, blocks, ranks, hops
    EXPECT_EQ(e.hops_stalled, 0);
    // Only the return of the gradients of K and V, after the last hop, is exposed.
    const double home = 2 * (kAccelerator.latency_s + 16384.0 * 8 * 128 * 2 / kAccelerator.sent_bytes_per_s);
    EXPECT_LE(e.stalled, 2 * 2 * cp * home * (1 + 1e-9));
  }
}

// The same with short sequences: transfers take longer than hops, and are exposed.
TEST(Simulate, ShortSequencesExposeTheRing) {
  const World world = compile_world(long_ring(4, 512));
  const Simulation sim = run(world, kAccelerator);
  EXPECT_GT(exposed(world, sim).hops_stalled, 0);
}

}  // namespace
}  // namespace quintet::sim
