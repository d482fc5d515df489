// The end of a step: one sum of squares over all gradients and one update of all groups.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/error.h"
#include "program/flat_ranges.h"
#include "program/support.h"
#include "program/verify.h"

namespace quintet::program {
namespace {

using namespace testing;

std::vector<Instr*> all_of(Program& p, const graph::OpDef& op) {
  std::vector<Instr*> list;
  for (Body& body : p.bodies)
    for (Instr& instr : body.instrs)
      if (instr.op == &op) list.push_back(&instr);
  return list;
}

size_t trainable(const Program& p) {
  size_t groups = 0;
  for (const GroupSlot& s : p.slots) groups += holds_gradients(s);
  return groups;
}

TEST(Step, IsOneSumOfSquaresAndOneUpdateInEveryLayout) {
  for (const Layout& layout : all_layouts()) {
    SCOPED_TRACE(layout.name);
    World world = compile_world(layout.overrides);
    for (Program& p : world.programs) {
      const size_t groups = trainable(p);
      const auto squares = all_of(p, graph::kSumSquares), updates = all_of(p, graph::kAdamW);
      ASSERT_EQ(squares.size(), groups > 0);
      ASSERT_EQ(updates.size(), groups > 0);
      if (groups == 0) continue;
      EXPECT_EQ(squares[0]->in.size(), groups);
      EXPECT_EQ(updated_groups(*updates[0]), groups);
    }
  }
}

// Contiguous segments form one range, unless they differ in weight decay or have padding in between.
TEST(Step, RangesAreMinimal) {
  const auto ranges = [](const graph::OpDef& op, const Overrides& overrides) {
    compiler::Compiled c = compile_small(overrides);
    return flat_ranges(*all_of(c.program, op)[0]);
  };
  const auto of_block = [](const std::vector<FlatRange>& all, int64_t block) {
    std::vector<FlatRange> list;
    for (const FlatRange& r : all)
      if (r.operand == block) list.push_back(r);
    return list;
  };
  // norm 16; q, k, v, o of 16 x 24; norm 16; gate, up, down of 16 x 24
  const auto squares = of_block(ranges(graph::kSumSquares, {}), 1),
             updates = of_block(ranges(graph::kAdamW, {}), 1);
  ASSERT_EQ(squares.size(), 1u);
  EXPECT_EQ(squares[0].first, 0);
  EXPECT_EQ(squares[0].count, 16 + 4 * 384 + 16 + 3 * 384);
  ASSERT_EQ(updates.size(), 4u);
  const int64_t counts[] = {16, 4 * 384, 16, 3 * 384};
  int64_t at = 0;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(updates[i].first, at);
    EXPECT_EQ(updates[i].count, counts[i]);
    EXPECT_EQ(updates[i].row, static_cast<int64_t>(i % 2));
    at += counts[i];
  }
  // Norms of 13 elements are padded to 16.
  const Overrides odd = {"model.embed=13"};
  const auto padded = of_block(ranges(graph::kSumSquares, odd), 1);
  for (const FlatRange& r : padded) EXPECT_EQ(r.first % 8, 0);
  ASSERT_GT(padded.size(), 1u);
  EXPECT_EQ(padded[0].count, 13);
  EXPECT_EQ(padded[1].first, 16);
}

// Stochastic rounding draws from a stream of each parameter's own: with one key for all of them, equal
// gradients would be rounded alike everywhere. Every rank that holds a part of a parameter has its key.
TEST(Step, EveryParameterHasItsOwnRandomKey) {
  const Overrides overrides = {
      "precision.compute=bf16", "precision.moments=bf16", "precision.moments_rounding=stochastic",
      "parallel.dp_shard=2",    "parallel.zero=2",        "parallel.tp=2"};
  World world = compile_world(overrides);
  std::set<int64_t> all_keys;
  for (Program& p : world.programs) {
    const std::vector<Instr*> updates = all_of(p, graph::kAdamW);
    ASSERT_EQ(updates.size(), 1u);
    const std::vector<int64_t>& origins = updates[0]->attrs.integers("origins");
    ASSERT_EQ(origins.size(), 5 * flat_ranges(*updates[0]).size());
    std::set<int64_t> keys;
    for (size_t i = 0; i < origins.size(); i += 5)
      EXPECT_TRUE(keys.insert(origins[i]).second) << "range " << i / 5 << " shares its key";
    EXPECT_GT(keys.size(), 10u);
    for (const int64_t key : keys) all_keys.insert(key);
  }
  size_t parameters = 0;
  const graph::Graph logical = compile_small(overrides).logical;
  for (const graph::Param& param : logical.params()) parameters += param.trainable;
  EXPECT_EQ(all_keys.size(), parameters) << "ranks draw from different streams for one parameter";
}

TEST(Step, FaultsOfRangesAreFound) {
  const auto fault = [](const graph::OpDef& op, const std::function<void(Instr&)>& mutate) -> std::string {
    compiler::Compiled c = compile_small({});
    mutate(*all_of(c.program, op)[0]);
    try {
      verify(c.program, c.step);
    } catch (const base::InternalError& e) {
      return e.what();
    }
    return "not found";
  };
  const auto ranges = [](const std::function<void(std::vector<FlatRange>&)>& change) {
    return [change](Instr& instr) {
      std::vector<FlatRange> list = flat_ranges(instr);
      change(list);
      instr.attrs.set("ranges", to_attribute(list));
    };
  };
  const auto has = [](const std::string& text, const char* words) {
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  for (const graph::OpDef* op : {&graph::kSumSquares, &graph::kAdamW}) {
    has(fault(*op, ranges([](auto& r) { r.back().count += 64; })), "elements");
    has(fault(*op, ranges([](auto& r) { r.back().operand += 1; })), "a range of operand 4 of 4");
    has(fault(*op, ranges([](auto& r) { std::swap(r.front(), r.back()); })), "a range of operand");
    has(fault(*op, [](Instr& i) { i.attrs.set("ranges", std::vector<int64_t>{0, 0, 1}); }), "not whole");
    has(fault(*op, [](Instr& i) { i.in[1].type.dtype = graph::DType::BF16; }), "different dtypes");
  }
  has(fault(graph::kAdamW, [](Instr& i) { i.out.pop_back(); }), "do not divide among 4 groups");
  has(fault(graph::kAdamW, [](Instr& i) { std::swap(i.in[0], i.in[1]); }), "its gradient");
  has(fault(graph::kAdamW, [](Instr& i) { i.in.pop_back(); }),
      "after them, lr, clip_scale, ok, update_count");
  has(fault(graph::kAdamW,
            [](Instr& i) {
              for (size_t g = 4; g-- > 0;) i.out.erase(i.out.begin() + static_cast<int>(g * 3 + 2));
            }),
      "2 results a group; 3 or 4 make an update with 2 moments");
  const char* squares = "a term of the norm has gradients, and one of the scalars";
  has(fault(graph::kSumSquares, [](Instr& i) { i.in.clear(); }), squares);
  has(fault(graph::kSumSquares, [](Instr& i) { i.out.clear(); }), squares);
  has(fault(graph::kSumSquares,
            [](Instr& i) {
              i.out.push_back(i.out[0]);
              i.out[1].offset_bytes += 8;
            }),
      squares);
  // A skipped step must not write.
  has(fault(graph::kAdamW, [](Instr& i) { i.op = &graph::kCopy; }), "outlives the step, and is not gated");
  // Into the first moments.
  BufferId moment;
  for (const GroupSlot& s : compile_small({}).program.slots)
    if (s.role == graph::Role::Moment) moment = s.buffer;
  has(fault(graph::kSumSquares, [&](Instr& i) { i.out[0].buffer = moment; }), "is not gated");
}

}  // namespace
}  // namespace quintet::program
