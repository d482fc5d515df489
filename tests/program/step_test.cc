// The end of a step: the norm of all gradients, and which updates are one instruction.
#include <gtest/gtest.h>

#include <functional>

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
  for (const GroupState& g : p.groups) groups += g.moment1.valid();
  return groups;
}

TEST(Step, OneRankUpdatesAllGroupsTogether) {
  compiler::Compiled c = compile_small({});
  const auto squares = all_of(c.program, graph::kSumSquares), updates = all_of(c.program, graph::kAdamW);
  ASSERT_EQ(squares.size(), 1u);
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_EQ(squares[0]->in.size(), trainable(c.program));
  EXPECT_EQ(updated_groups(*updates[0]), trainable(c.program));
  EXPECT_EQ(updates[0]->note, "update 4 groups");
  int64_t elements = 0, squared = 0, updated = 0;
  for (const GroupState& g : c.program.groups) elements += g.count;
  for (const FlatRange& r : flat_ranges(*squares[0])) squared += r.count;
  for (const FlatRange& r : flat_ranges(*updates[0])) updated += r.count;
  EXPECT_EQ(squared, updated);
  EXPECT_LE(updated, elements);  // less the padding between segments
  EXPECT_GT(updated, elements - 8 * 9 * 4);
  // Segments of a block lie side by side here and are one range, or one for each change of the decay.
  EXPECT_EQ(flat_ranges(*squares[0]).size(), 4u);
  EXPECT_LT(flat_ranges(*updates[0]).size(), 12u);
}

TEST(Step, WhatIsGatheredIsUpdatedByItself) {
  for (const char* zero : {"1", "2", "3"}) {
    compiler::Compiled c = compile_small({"parallel.dp_shard=2", std::string("parallel.zero=") + zero});
    EXPECT_EQ(all_of(c.program, graph::kSumSquares).size(), 1u);
    const auto updates = all_of(c.program, graph::kAdamW);
    ASSERT_EQ(updates.size(), trainable(c.program));
    EXPECT_EQ(updates[1]->note, "update block1");
    EXPECT_EQ(updates[1]->block, 1);
  }
  compiler::Compiled replicas = compile_small({"parallel.dp_replicate=2"});
  EXPECT_EQ(all_of(replicas.program, graph::kAdamW).size(), 1u);
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
  has(fault(graph::kAdamW, [](Instr& i) { i.in.pop_back(); }), "behind them, the scalars");
}

}  // namespace
}  // namespace quintet::program
