// Matrices that are exchanged with their owners (Muon): what the programs of a world have, and faults that
// the verifier must find.
#include "program/matrix_pieces.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "base/error.h"
#include "program/ledger.h"
#include "program/support.h"
#include "program/verify.h"

namespace quintet::program::matrix_pieces_test {
namespace {

using namespace program::testing;

const Overrides kShardedMuon = {"optimizer.name=muon", "parallel.dp_shard=2", "parallel.zero=2",
                                "parallel.tp=2"};

std::vector<Instr*> step_instrs(Program& p, const std::function<bool(const Instr&)>& wanted) {
  std::vector<Instr*> list;
  for (Body& body : p.bodies)
    if (body.kind == BodyKind::Step)
      for (Instr& i : body.instrs)
        if (wanted(i)) list.push_back(&i);
  return list;
}
bool is_newton_schulz(const Instr& i) { return i.op == &graph::kNewtonSchulz; }
bool is_gather(const Instr& i) { return i.op == &graph::kGatherDirections; }
bool is_apply(const Instr& i) { return i.op == &graph::kApplyDirections; }
bool is_piece_exchange(const Instr& i) {
  return i.kind == InstrKind::Collective && i.collective.kind == CollectiveKind::Exchange;
}

// Two blocks of seven matrices; owners have whole ones, and all of them together have each once.
TEST(MatrixPieces, EveryMatrixHasOneOwner) {
  for (const Overrides& layout : {kShardedMuon, Overrides{"optimizer.name=muon"},
                                  Overrides{"optimizer.name=muon", "parallel.dp_replicate=3"}}) {
    World world = compile_world(layout);
    int64_t elements = 0;
    for (Program& p : world.programs)
      for (const Instr* i : step_instrs(p, is_newton_schulz))
        for (const MatrixPiece& piece : matrix_pieces(i->attrs)) elements += piece.count;
    // q, k, v and o of 24 x 16, and three of 24 x 16 of the feed-forward layer
    EXPECT_EQ(elements, 2 * 7 * 24 * 16);
    EXPECT_EQ(step_instrs(world.programs[0], is_piece_exchange).empty(), world.programs.size() == 1);
  }
}

TEST(MatrixPieces, EachRankAppliesWhatItStores) {
  World world = compile_world(kShardedMuon);
  for (Program& p : world.programs) {
    int64_t applied = 0;
    for (const Instr* i : step_instrs(p, is_apply))
      for (const FlatPiece& piece : flat_pieces(i->attrs)) applied += piece.count;
    EXPECT_EQ(applied, 2 * 7 * 24 * 16 / 4) << p.rank.value;
  }
}

TEST(MatrixPieces, NewtonSchulzIsInTheCosts) {
  World adamw = compile_world({}), muon = compile_world({"optimizer.name=muon"});
  const double more = make_ledger(muon.programs[0], muon.expanded[0]).flops -
                      make_ledger(adamw.programs[0], adamw.expanded[0]).flops;
  const double m = 16, n = 24;
  EXPECT_NEAR(more, 2 * 7 * 5 * (4 * m * m * n + 2 * m * m * m), 0.05 * more);
}

struct Fault {
  const char* name;
  std::function<bool(const Instr&)> where;
  std::function<void(Instr&)> apply;
};

void change(Instr& i, const char* attribute, const std::function<void(std::vector<int64_t>&)>& fn) {
  std::vector<int64_t> numbers = i.attrs.integers(attribute);
  fn(numbers);
  i.attrs.set(attribute, std::move(numbers));
}

TEST(MatrixPieces, FaultsAreFound) {
  const std::vector<Fault> faults = {
      {"a share of another size", is_piece_exchange,
       [](Instr& i) { change(i, "shares", [](auto& n) { n[2] -= 1; }); }},
      {"a share for no owner", is_piece_exchange,
       [](Instr& i) { change(i, "shares", [](auto& n) { n[1] = 99; }); }},
      {"shares that do not fit", is_piece_exchange,
       [](Instr& i) { change(i, "shares", [](auto& n) { n[2] += 1000000; }); }},
      {"shares out of order", is_piece_exchange,
       [](Instr& i) {
         change(i, "shares", [](auto& n) { std::swap_ranges(n.begin(), n.begin() + 3, n.end() - 3); });
       }},
      {"another direction", is_piece_exchange,
       [](Instr& i) { i.attrs.set("back", int64_t{1} - i.attrs.integer("back")); }},
      {"a matrix without a piece", is_newton_schulz,
       [](Instr& i) { change(i, "ranges", [](auto& n) { n.resize(n.size() - 7); }); }},
      {"a piece outside its matrix", is_newton_schulz,
       [](Instr& i) { change(i, "ranges", [](auto& n) { n[2] += 24; }); }},
      {"a piece outside the buffer", is_newton_schulz,
       [](Instr& i) { change(i, "ranges", [](auto& n) { n[0] += 1000000; }); }},
      {"two pieces in one place", is_gather,
       [](Instr& i) { change(i, "ranges", [](auto& n) { n[8] = n[3]; }); }},
      {"a piece of no group", is_gather, [](Instr& i) { change(i, "ranges", [](auto& n) { n[0] = 99; }); }},
      {"two updates of one element", is_apply,
       [](Instr& i) { change(i, "ranges", [](auto& n) { n[5] = n[0], n[6] = n[1]; }); }},
      {"an update that reads no ok", is_apply, [](Instr& i) { i.in[2] = i.in[1]; }}};
  for (const Fault& fault : faults) {
    World world = compile_world(kShardedMuon);
    Program& p = world.programs[1];
    bool applied = false;
    for (Instr* i : step_instrs(p, fault.where)) {
      const bool listed = i->attrs.find("ranges") == nullptr || i->attrs.integers("ranges").size() >= 14;
      if (applied || !listed) continue;
      fault.apply(*i);
      applied = true;
    }
    ASSERT_TRUE(applied) << fault.name;
    world.expanded[1] = expand(p, p.calls);
    EXPECT_THROW(
        {
          verify(p, world.expanded[1]);
          verify_together(world.program_list(), world.expanded_list());
        },
        base::InternalError)
        << fault.name;
  }
}

// Position 1 of two runs of two holders: it sends to owners of its own run, and hears from all.
TEST(MatrixPieces, CopiesAreAnsweredByAllOwners) {
  PieceExchange e{.holders = 2, .shares = {{0, 1, 5}, {0, 2, 3}, {1, 1, 7}, {1, 3, 2}}};
  EXPECT_EQ(e.sent(1, 4).counts, (std::vector<int64_t>{0, 7, 0, 0}));
  EXPECT_EQ(e.received(1, 4).counts, (std::vector<int64_t>{5, 7, 0, 0}));
  EXPECT_EQ(e.received(1, 4).offsets, (std::vector<int64_t>{0, 5, 0, 0}));
  EXPECT_EQ(e.sent(3, 4).counts, (std::vector<int64_t>{0, 0, 0, 2}));
  e.back = true;
  EXPECT_EQ(e.sent(1, 4).counts, (std::vector<int64_t>{5, 7, 5, 7}));
  EXPECT_EQ(e.sent(1, 4).offsets, (std::vector<int64_t>{0, 5, 0, 5}));
  EXPECT_EQ(e.received(1, 4).counts, (std::vector<int64_t>{0, 7, 0, 2}));
  EXPECT_EQ(e.received(0, 4).counts, (std::vector<int64_t>{0, 5, 3, 0}));
  EXPECT_EQ(piece_exchange(to_attributes(e)).sent(1, 4).counts, e.sent(1, 4).counts);
}

}  // namespace
}  // namespace quintet::program::matrix_pieces_test
