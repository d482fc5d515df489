#include "program/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "program/support.h"
#include "program/text.h"

namespace quintet::program {
namespace {

using namespace testing;

TEST(Verify, AcceptsEveryKindOfLayout) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const World world = compile_world(layout.overrides);
    for (size_t r = 0; r < world.programs.size(); ++r)
      EXPECT_NO_THROW(verify(world.programs[r], world.expanded[r]));
    EXPECT_NO_THROW(verify_together(world.program_list(), world.expanded_list()));
  }
}

TEST(Verify, AcceptsEvaluationAndInference) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    const config::Recipe recipe = small_recipe(layout.overrides);
    const auto with_eval = compiler::compile(recipe, {.evaluate = true});
    EXPECT_NO_THROW(verify(with_eval.program, with_eval.step));
    EXPECT_NO_THROW(verify(with_eval.program, with_eval.evaluate));
    if (recipe.parallel.dp() > 1) continue;  // one sequence has no rows for several data ranks
    if (recipe.parallel.pp > 1) continue;    // inference has no pipeline
    const auto infer = compiler::compile(recipe, {.infer = true});
    EXPECT_NO_THROW(verify(infer.program, infer.step));
  }
}

TEST(Verify, AcceptsSeveralPrefetchDistances) {
  for (const char* prefetch : {"0", "1", "2", "5"}) {
    SCOPED_TRACE(prefetch);
    const World world = compile_world({"parallel.dp_shard=2", "parallel.zero=3", "batch.accumulation=2",
                                       std::string("parallel.prefetch=") + prefetch});
    for (size_t r = 0; r < world.programs.size(); ++r)
      EXPECT_NO_THROW(verify(world.programs[r], world.expanded[r]));
    EXPECT_NO_THROW(verify_together(world.program_list(), world.expanded_list()));
  }
}

TEST(Verify, FailureNamesRankBodyInstructionAndFault) {
  World world = compile_world({"parallel.tp=2"});
  Program& p = world.programs[1];
  for (size_t b = 0; b < p.bodies.size(); ++b)
    for (size_t i = 0; i < p.bodies[b].instrs.size(); ++i) {
      Instr& instr = p.bodies[b].instrs[i];
      if (instr.kind != InstrKind::Collective || p.bodies[b].kind != BodyKind::Forward) continue;
      instr.collective.count += 1;
      try {
        verify(p, world.expanded[1]);
        FAIL() << "not caught";
      } catch (const base::InternalError& e) {
        const std::string text = e.what();
        EXPECT_NE(text.find(fmt::format("rank 1, forward instruction {} [", i)), std::string::npos) << text;
        EXPECT_NE(text.find("all_reduce comm=tp"), std::string::npos) << text;
        EXPECT_NE(text.find("elements, the message has"), std::string::npos) << text;
      }
      return;
    }
  FAIL() << "no collective";
}

// Two ranks, each with two streams and two communicators of the same members, which they use in opposite
// orders: for one sum each, or for a message in each direction.
World crossed_world(bool messages) {
  World world;
  for (int r = 0; r < 2; ++r) {
    Program p{.rank = RankId(r), .world = 2};
    p.streams = {{"compute"}, {"a"}, {"b"}};
    p.buffers = {{.name = "scalars", .bytes = 96, .scope = Scope::Persistent, .offset = 0},
                 {.name = "workspace", .bytes = 0, .scope = Scope::Persistent, .offset = 128}};
    p.scalars = BufferId(0);
    p.workspace = BufferId(1);
    p.arena_bytes = p.persistent_bytes = 128;
    p.comms = {{.channel = {.axes = {{layout::Axis::Tp, 0}}},
                .atoms = {0},
                .members = {RankId(0), RankId(1)},
                .position = r},
               {.channel = {.axes = {{layout::Axis::Tp, 1}}},
                .atoms = {1},
                .members = {RankId(0), RankId(1)},
                .position = r}};
    Body body{.kind = BodyKind::Begin, .instrs = {}};
    for (const int c : {0, 1}) {
      const int comm = r == 0 ? c : 1 - c;
      const Operand data{BufferId(0), comm * 8, {graph::DType::F64, {}}};
      Instr instr{.kind = InstrKind::Collective, .in = {data}, .out = {data}};
      instr.collective = {CollectiveKind::AllReduce, CommId(comm), 1, graph::DType::F64,
                          graph::Reduction::Sum};
      if (messages) {  // each sends on the communicator that it uses first
        instr.collective.kind = c == 0 ? CollectiveKind::Send : CollectiveKind::Recv;
        (c == 0 ? instr.out : instr.in).clear();
      }
      instr.stream = StreamId(1 + comm);
      body.instrs.push_back(instr);
    }
    p.bodies.push_back(body);
    p.calls = {{0, -1, true, true}};
    world.expanded.push_back(expand(p, p.calls));
    world.programs.push_back(std::move(p));
  }
  return world;
}

std::string complaint(const World& world) {
  try {
    verify_together(world.program_list(), world.expanded_list());
  } catch (const base::InternalError& e) {
    return e.what();
  }
  return "";
}

// Separate streams would let both proceed, but programs must not rely on their number.
TEST(VerifyTogether, CollectivesFollowOneOrder) {
  const std::string text = complaint(crossed_world(false));
  EXPECT_NE(text.find("ranks issue collectives in different orders"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 0, begin instruction 0 [a"), std::string::npos) << text;
  EXPECT_NE(text.find("is issued before rank 0, begin instruction 1 [b"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1, begin instruction 0 [b"), std::string::npos) << text;
  EXPECT_NE(text.find("is issued before rank 1, begin instruction 1 [a"), std::string::npos) << text;
}

TEST(VerifyTogether, MessagesMayBeIssuedInDifferentOrders) { EXPECT_EQ(complaint(crossed_world(true)), ""); }

// In a compiled program: on one rank a collective moves past one of another communicator that has two ranks
// in common with its own. Each communicator still sees the same sequence, and streams keep both from
// stalling.
TEST(VerifyTogether, NamesBothCollectivesThatOneRankSwaps) {
  const World good = compile_world({"parallel.dp_shard=2", "parallel.tp=2", "parallel.zero=1"});
  constexpr size_t kRank = 2;
  const Program& p = good.programs[kRank];
  const auto members = [&](const Instr& i) { return p.comms[i.collective.comm.index()].members; };
  int swapped = 0;
  for (size_t b = 0; b < p.bodies.size(); ++b) {
    const std::vector<Instr>& list = p.bodies[b].instrs;
    for (size_t i = 0; i < list.size(); ++i)
      for (size_t j = i + 1; j < std::min(i + 6, list.size()); ++j) {
        if (list[i].kind != InstrKind::Collective || list[j].kind != InstrKind::Collective ||
            list[i].collective.comm == list[j].collective.comm)
          continue;
        std::vector<RankId> both;
        for (const RankId m : members(list[i]))
          if (std::ranges::count(members(list[j]), m) > 0) both.push_back(m);
        if (both.size() < 2) continue;
        World world = good;
        std::vector<Instr>& changed = world.programs[kRank].bodies[b].instrs;
        std::rotate(changed.begin() + static_cast<ptrdiff_t>(i),
                    changed.begin() + static_cast<ptrdiff_t>(i) + 1,
                    changed.begin() + static_cast<ptrdiff_t>(j) + 1);
        try {
          world.expanded[kRank] = expand(world.programs[kRank], p.calls);
          verify(world.programs[kRank], world.expanded[kRank]);
        } catch (const base::InternalError&) {
          continue;  // wrong for its own rank already
        }
        ++swapped;
        const std::string text = complaint(world);
        EXPECT_NE(text.find("ranks issue collectives in different orders"), std::string::npos) << text;
        EXPECT_NE(text.find(to_text(p, list[i])), std::string::npos) << text;
        EXPECT_NE(text.find(to_text(p, list[j])), std::string::npos) << text;
        EXPECT_NE(text.find("rank 2, "), std::string::npos) << text;
      }
  }
  EXPECT_GT(swapped, 0);
}

TEST(VerifyTogether, ReportsWhoWaitsForWhomInADeadlock) {
  World world = crossed_world(true);
  // The second instruction of each rank waits for the first: both send before they receive.
  for (int r = 0; r < 2; ++r) {
    Expanded& e = world.expanded[static_cast<size_t>(r)];
    e.waits.push_back({StreamId(r == 0 ? 1 : 2), 0});
    e.issues[1].first_wait = 0;
    e.issues[1].num_waits = 1;
    EXPECT_NO_THROW(verify(world.programs[static_cast<size_t>(r)], e));
  }
  try {
    verify_together(world.program_list(), world.expanded_list());
    FAIL() << "not caught";
  } catch (const base::InternalError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("deadlock"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 0 stream a is at"), std::string::npos) << text;
    EXPECT_NE(text.find("waits for rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("waits for position 0 of its stream b"), std::string::npos) << text;
  }
}

// A ring of three: each rank makes rows, forwards them, frees them and receives the next ones: with `reuse`
// in the bytes of those it sent, otherwise in others.
World ring_world(bool reuse) {
  const graph::Type rows{graph::DType::F32, {{graph::Dim::Flat, 32}}};
  World world;
  for (int r = 0; r < 3; ++r) {
    Program p{.rank = RankId(r), .world = 3};
    p.streams = {{"compute"}, {"cp.recv"}, {"cp.send"}};
    p.buffers = {{.name = "scalars", .bytes = 128, .scope = Scope::Persistent, .offset = 0},
                 {.name = "workspace", .bytes = 0, .scope = Scope::Persistent, .offset = 128},
                 {.name = "stored", .bytes = 128, .scope = Scope::Persistent, .offset = 128},
                 {.name = "own", .bytes = 128, .offset = 256},
                 {.name = "next", .bytes = 128, .offset = reuse ? 256 : 384}};
    p.scalars = BufferId(0);
    p.workspace = BufferId(1);
    p.persistent_bytes = 256;
    p.arena_bytes = 512;
    const int before = (r + 2) % 3, after = (r + 1) % 3;
    const auto ring = [](int from, int to, int position) {
      return Communicator{
          .channel = {.axes = {{layout::Axis::Cp}}, .purpose = Purpose::Ring, .places = {from, to}},
          .atoms = {0},
          .members = {RankId(from), RankId(to)},
          .position = position};
    };
    p.comms = {ring(before, r, 1), ring(r, after, 0)};
    const Operand stored{BufferId(2), 0, rows}, own{BufferId(3), 0, rows}, next{BufferId(4), 0, rows};
    const auto message = [&](CollectiveKind kind) {
      Instr instr{.kind = InstrKind::Collective};
      const bool sends = kind == CollectiveKind::Send;
      instr.collective = {kind, CommId(sends ? 1 : 0), 32, graph::DType::F32, graph::Reduction::Sum};
      instr.stream = StreamId(sends ? 2 : 1);
      (sends ? instr.in : instr.out) = {sends ? own : next};
      return instr;
    };
    Body body{.kind = BodyKind::Begin, .instrs = {}};
    body.instrs = {{.op = &graph::kCopy, .in = {stored}, .out = {own}},
                   message(CollectiveKind::Send),
                   {.kind = InstrKind::Free, .frees = BufferId(3)},
                   message(CollectiveKind::Recv),
                   {.op = &graph::kCopy, .in = {next}, .out = {stored}},
                   {.kind = InstrKind::Free, .frees = BufferId(4)}};
    p.bodies.push_back(body);
    p.calls = {{0, -1, true, true}};
    world.expanded.push_back(expand(p, p.calls));
    world.programs.push_back(std::move(p));
  }
  return world;
}

TEST(VerifyTogether, ARingThatReceivesIntoWhatItSendsDeadlocks) {
  for (const bool reuse : {false, true}) {
    const World world = ring_world(reuse);
    for (size_t r = 0; r < 3; ++r) EXPECT_NO_THROW(verify(world.programs[r], world.expanded[r]));
    try {
      verify_together(world.program_list(), world.expanded_list());
      EXPECT_FALSE(reuse) << "not caught";
    } catch (const base::InternalError& error) {
      EXPECT_TRUE(reuse) << error.what();
      const std::string text = error.what();
      EXPECT_NE(text.find("deadlock"), std::string::npos) << text;
      EXPECT_NE(text.find("begin instruction 1 [cp.send send comm=cp ring 0-1"), std::string::npos) << text;
      EXPECT_NE(text.find("waits for position 0 of its stream cp.send"), std::string::npos) << text;
    }
  }
}

TEST(VerifyTogether, MembersAreRanksOfTheWorld) {
  World world = compile_world({"parallel.tp=2"});
  for (Program& p : world.programs) p.comms[0].members.back() = RankId(2);
  const std::string text = complaint(world);
  EXPECT_NE(text.find("there is no rank 2"), std::string::npos) << text;
}

TEST(VerifyTogether, MembersMustAgree) {
  World world = compile_world({"parallel.dp_shard=2", "parallel.tp=2"});
  std::swap(world.programs[3].comms[0].members[0], world.programs[3].comms[0].members[1]);
  world.programs[3].comms[0].position = 0;
  EXPECT_NO_THROW(verify(world.programs[0], world.expanded[0]));
  EXPECT_THROW(verify_together(world.program_list(), world.expanded_list()), base::InternalError);
}

}  // namespace
}  // namespace quintet::program
