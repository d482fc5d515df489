// Concurrent collectives of a rank on one link share it.
#include <gtest/gtest.h>

#include "sim/support.h"

namespace quintet::sim {
namespace {

using program::Communicator;
using program::Instr;
using program::InstrKind;
using program::Program;
using program::RankId;
using program::StreamId;

// Two ranks; on each stream 1, 2, ... one collective of both ranks, all free to start at once.
struct Two {
  std::vector<Program> programs;
  std::vector<program::Expanded> expanded;
  World world() const {
    World w;
    for (size_t r = 0; r < programs.size(); ++r) w.ranks.push_back({&programs[r], &expanded[r]});
    return w;
  }
};

using program::CollectiveKind;

Two two_ranks(const std::vector<CollectiveKind>& kinds) {
  Two t;
  for (int r = 0; r < 2; ++r) {
    Program p;
    p.rank = RankId(r);
    p.world = 2;
    p.streams.push_back({"compute"});
    program::Body body{.kind = program::BodyKind::Forward};
    for (size_t i = 0; i < kinds.size(); ++i) {
      p.streams.push_back({"comm"});
      p.comms.push_back({.channel = {.purpose = program::Purpose::Up, .places = {static_cast<int>(i), 0}},
                         .members = {RankId(0), RankId(1)},
                         .position = r});
      Instr instr{.kind = InstrKind::Collective};
      // A message goes from rank 0 to rank 1; Recv is the other direction.
      const bool message = kinds[i] == CollectiveKind::Send || kinds[i] == CollectiveKind::Recv;
      const bool sends = (kinds[i] == CollectiveKind::Send) == (r == 0);
      instr.collective = {.kind = !message ? kinds[i]
                                  : sends  ? CollectiveKind::Send
                                           : CollectiveKind::Recv,
                          .comm = program::CommId(static_cast<int32_t>(i))};
      instr.stream = StreamId(static_cast<int32_t>(i) + 1);
      body.instrs.push_back(std::move(instr));
    }
    p.bodies.push_back(std::move(body));
    p.calls = {{.body = 0, .micro = 0, .first = true, .last = true}};
    t.expanded.push_back(program::expand(p, p.calls));
    t.programs.push_back(std::move(p));
  }
  return t;
}

// Durations of the collectives by themselves, and the link of each.
std::vector<double> ends(const Two& t, const std::vector<double>& seconds, const std::vector<int>& links,
                         double latency = 0) {
  const auto of = [](const Instr& i) { return i.collective.comm.index(); };
  const Simulation sim = simulate(t.world(), [&](const Program&, const Instr& i) { return seconds[of(i)]; },
                                  {.use = [&](const Program&, const Instr& i) {
                                    return Use{links[of(i)], latency};
                                  }});
  std::vector<double> out;
  for (size_t k = 0; k < sim.ranks[0].size(); ++k) {
    EXPECT_EQ(sim.ranks[0][k].end, sim.ranks[1][k].end);
    EXPECT_EQ(sim.ranks[0][k].start, 0);
    out.push_back(sim.ranks[0][k].end);
  }
  return out;
}

using Ends = std::vector<double>;
constexpr CollectiveKind kReduce = CollectiveKind::AllReduce, kSend = CollectiveKind::Send,
                         kBack = CollectiveKind::Recv;

TEST(Contention, TwoOnOneLinkShareIt) {
  const Two t = two_ranks({kReduce, kReduce});
  // Both at half speed until the short one has sent its 2 seconds' worth at 4; then the other alone.
  EXPECT_EQ(ends(t, {6, 2}, {0, 0}), (Ends{8, 4}));
  EXPECT_EQ(ends(t, {3, 3}, {1, 1}), (Ends{6, 6}));
}

TEST(Contention, ThreeShareInThirds) {
  // 1 each by 3; then 1 more each at half speed by 5; then the last.
  EXPECT_EQ(ends(two_ranks({kReduce, kReduce, kReduce}), {1, 2, 4}, {0, 0, 0}), (Ends{3, 5, 7}));
}

TEST(Contention, OtherLinksAndDirectionsDoNotShare) {
  EXPECT_EQ(ends(two_ranks({kReduce, kReduce}), {6, 2}, {0, 1}), (Ends{6, 2}));
  EXPECT_EQ(ends(two_ranks({kReduce, kReduce}), {6, 2}, {-1, -1}), (Ends{6, 2}));
  EXPECT_EQ(ends(two_ranks({kSend, kBack}), {6, 2}, {0, 0}), (Ends{6, 2}));  // one out, one in
  EXPECT_EQ(ends(two_ranks({kSend, kSend}), {6, 2}, {0, 0}), (Ends{8, 4}));
  EXPECT_EQ(ends(two_ranks({kReduce, kSend}), {6, 2}, {0, 0}), (Ends{8, 4}));
}

// Latency before bytes flow is not slowed down and slows nothing down.
TEST(Contention, LatencyIsNotShared) {
  EXPECT_EQ(ends(two_ranks({kReduce, kReduce}), {3, 3}, {0, 0}, 1), (Ends{5, 5}));
  EXPECT_EQ(ends(two_ranks({kReduce, kReduce}), {3, 1}, {0, 0}, 1), (Ends{3, 1}));
}

// On whole worlds: never faster than without contention.
TEST(Contention, NeverHelps) {
  for (const program::testing::Layout& layout : program::testing::all_layouts()) {
    SCOPED_TRACE(layout.name);
    const program::testing::World world = program::testing::compile_world(layout.overrides);
    const DurationFn duration = by_rates(testing::kRates);
    const double alone = simulate(testing::world_of(world), duration).end;
    const double shared = simulate(testing::world_of(world), duration,
                                   {.use = [](const Program&, const Instr&) { return Use{.link = 0}; }})
                              .end;
    EXPECT_GE(shared, alone * (1 - 1e-9));
  }
}

}  // namespace
}  // namespace quintet::sim
