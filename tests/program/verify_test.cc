#include "program/verify.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "program/support.h"

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

// Two ranks, each with two streams and two communicators of the same members; rank 1 joins the streams
// crosswise.
World crossed_world() {
  World world;
  for (int r = 0; r < 2; ++r) {
    Program p{.rank = RankId(r), .world = 2};
    p.streams = {{"compute"}, {"a"}, {"b"}};
    p.buffers = {{.name = "scalars", .bytes = 96, .scope = Scope::Persistent, .offset = 0},
                 {.name = "workspace", .bytes = 0, .scope = Scope::Persistent, .offset = 128}};
    p.scalars = BufferId(0);
    p.workspace = BufferId(1);
    p.arena_bytes = p.persistent_bytes = 128;
    p.comms = {{"a", {0}, {RankId(0), RankId(1)}, r}, {"b", {1}, {RankId(0), RankId(1)}, r}};
    Body body{.kind = BodyKind::Begin, .instrs = {}};
    for (const int c : {0, 1}) {
      const int comm = r == 0 ? c : 1 - c;
      const Operand data{BufferId(0), comm * 8, {graph::DType::F64, {}}};
      Instr instr{.kind = InstrKind::Collective, .in = {data}, .out = {data}};
      instr.collective = {CollectiveKind::AllReduce, CommId(comm), 1, graph::DType::F64,
                          graph::Reduction::Sum};
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

TEST(VerifyTogether, StreamsMayBeIssuedInDifferentOrders) {
  const World world = crossed_world();
  EXPECT_NO_THROW(verify_together(world.program_list(), world.expanded_list()));
}

TEST(VerifyTogether, ReportsWhoWaitsForWhomInADeadlock) {
  World world = crossed_world();
  // The second instruction of each rank waits for the first: rank 0 does a then b, rank 1 does b then a.
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
    EXPECT_NE(text.find("rank 0 stream a stands at"), std::string::npos) << text;
    EXPECT_NE(text.find("waits for rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("waits for position 0 of its stream b"), std::string::npos) << text;
  }
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
