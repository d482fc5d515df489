// Inference, refusals, cost and sharding of the ops of dispatch, experts and concatenated heads.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph/autodiff.h"
#include "graph/refusals.h"

namespace quintet::graph {
namespace {

using testing::attr;
using testing::expert_cases;
using testing::inferred;
using testing::op_case;
using testing::OpCase;
using testing::Refusal;
using testing::rename;
using testing::resize;
using testing::retype;
using testing::text;

// The case of an op with pad > 0.
OpCase padded(const OpDef& op) {
  for (const OpCase& c : expert_cases())
    if (c.op == &op && c.attrs.integer("pad") > 0) return c;
  base::fail_internal("no padded case of {}", op.name);
}

TEST(ExpertOps, Inferred) {
  EXPECT_EQ(inferred(kRoute), "i32[slots=16], i32[counts=4]");
  EXPECT_EQ(text(padded(kRoute).out()), "i32[slots=20], i32[counts=4]");
  EXPECT_EQ(inferred(kPack), "f32[slots=16, embed=16]");
  EXPECT_EQ(text(padded(kPack).out()), "f32[slots=20, embed=16]");
  EXPECT_EQ(inferred(kUnpack), "f32[tokens=8, embed=16]");
  EXPECT_EQ(text(padded(kUnpack).out()), "f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kPackWeights), "f32[slots=16]");
  EXPECT_EQ(inferred(kUnpackWeights), "f32[tokens=8, choices=2]");
  EXPECT_EQ(inferred(kExchangeCounts), "i32[counts=4]");
  EXPECT_EQ(inferred(kToExperts), "f32[routed=16, embed=16]");
  EXPECT_EQ(inferred(kToTokens), "f32[slots=16, embed=16]");
  EXPECT_EQ(inferred(kSplitRows), "i32[slots=16], i32[counts=4], i32[counts=4], i32[counts=1]");
  EXPECT_EQ(inferred(kNextPass), "i32[counts=1]");
  EXPECT_EQ(inferred(kRegroup), "f32[routed=16, embed=16]");
  EXPECT_EQ(inferred(kSumCopies), "f32[slots=8, embed=16]");
  EXPECT_EQ(inferred(kGroupedLinear), "f32[routed=16, expert_ffn=10]");
  EXPECT_EQ(inferred(kGroupedLinearDx), "f32[routed=16, embed=16]");
  EXPECT_EQ(inferred(kGroupedLinearDw), "f32[experts=4, expert_ffn=10, embed=16]");
  EXPECT_EQ(inferred(kExpertAct), "f32[routed=16, expert_ffn=10]");
  EXPECT_EQ(inferred(kExpertActDx),
            "f32[routed=16, expert_ffn=10], f32[routed=16, expert_ffn=10], f32[routed=16]");
  EXPECT_EQ(inferred(kScaleRows), "f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kScaleRowsDx), "f32[tokens=8, embed=16], f32[tokens=8, choices=1]");
  EXPECT_EQ(inferred(kJoinHeads), "f32[tokens=8, heads=4, head_dim=9]");
  EXPECT_EQ(inferred(kJoinHeadsDx),
            "f32[tokens=8, heads=4, head_dim=6], f32[tokens=8, choices=1, head_dim=3]");
}

std::vector<Refusal> refusals() {
  return {{&kRoute, "real experts", retype(0, DType::F32)},
          {&kRoute, "no choices", rename(0, 1, Dim::Embed)},
          {&kRoute, "no experts", attr("experts", int64_t{0})},
          {&kPack, "another number of slots", resize(1, 0, 15)},
          {&kPack, "an order of tokens", rename(1, 0, Dim::Tokens)},
          {&kPack, "x not by tokens", rename(0, 0, Dim::Slots)},
          {&kUnpack, "an order of other slots", resize(1, 0, 15)},
          {&kUnpack, "half a token", [](OpCase& c) { c.in[0].dims[0].size = c.in[1].dims[0].size = 15; }},
          {&kUnpack, "y not by slots", rename(0, 0, Dim::Routed)},
          {&kUnpack, "an addend of other rows", [](OpCase& c) { c.in.push_back(c.in[0]); }},
          {&kPackWeights, "other choices", resize(0, 1, 3)},
          {&kPackWeights, "narrow weights", retype(0, DType::BF16)},
          {&kPackWeights, "another number of slots", resize(1, 0, 15)},
          {&kUnpackWeights, "an order of other slots", resize(1, 0, 15)},
          {&kUnpackWeights, "narrow weights", retype(0, DType::BF16)},
          {&kExchangeCounts, "real counts", retype(0, DType::F32)},
          {&kToExperts, "rows that are no slots", rename(0, 0, Dim::Routed)},
          {&kToExperts, "real counts", retype(1, DType::F32)},
          {&kToTokens, "rows that are not routed", rename(0, 0, Dim::Slots)},
          {&kToTokens, "real counts", retype(2, DType::F32)},
          {&kUnpackWeights, "an addend of other rows", [](OpCase& c) { c.in.push_back(c.in[0]); }},
          {&kSplitRows, "an order of tokens", rename(0, 0, Dim::Tokens)},
          {&kSplitRows, "counts of another group", resize(1, 0, 12)},
          {&kSplitRows, "no rows", attr("rows", int64_t{0})},
          {&kSplitRows, "two passes at once", [](OpCase& c) { c.in.push_back(c.in[1]); }},
          {&kNextPass, "two numbers", resize(0, 0, 2)},
          {&kRegroup, "rows that are not routed", rename(0, 0, Dim::Slots)},
          {&kRegroup, "counts that are no whole sources", attr("experts", int64_t{3})},
          {&kSumCopies, "uneven blocks", attr("copies", int64_t{3})},
          {&kSumCopies, "rows that are no slots", rename(0, 0, Dim::Tokens)},
          {&kGroupedLinear, "another inner size", resize(0, 1, 17)},
          {&kGroupedLinear, "two dtypes", retype(1, DType::BF16)},
          {&kGroupedLinear, "rows that are not routed", rename(0, 0, Dim::Tokens)},
          {&kGroupedLinear, "weights without experts", rename(1, 0, Dim::Heads)},
          {&kGroupedLinear, "counts that are no whole sources", resize(2, 0, 6)},
          {&kGroupedLinearDx, "another width", resize(0, 1, 11)},
          {&kGroupedLinearDx, "real counts", retype(2, DType::F32)},
          {&kGroupedLinearDw, "other rows", resize(1, 0, 15)},
          {&kGroupedLinearDw, "two dtypes", retype(1, DType::BF16)},
          {&kGroupedLinearDw, "real counts", retype(2, DType::F32)},
          {&kExpertAct, "up unlike gate", resize(1, 1, 11)},
          {&kExpertAct, "weights of other rows", resize(2, 0, 15)},
          {&kExpertAct, "narrow weights", retype(2, DType::BF16)},
          {&kExpertAct, "real counts", retype(3, DType::F32)},
          {&kExpertActDx, "dh unlike gate", resize(0, 1, 11)},
          {&kExpertActDx, "weights of other rows", resize(3, 0, 15)},
          {&kExpertBias, "a bias of another width", resize(1, 1, 11)},
          {&kExpertBias, "a bias without experts", rename(1, 0, Dim::Heads)},
          {&kExpertBias, "counts that are no whole sources", resize(2, 0, 6)},
          {&kExpertBiasDw, "rows that are not routed", rename(0, 0, Dim::Tokens)},
          {&kExpertBiasDw, "real counts", retype(1, DType::F32)},
          {&kSpreadChoices, "real choices", retype(1, DType::F32)},
          {&kSpreadChoices, "other choices", resize(0, 1, 3)},
          {&kGatherChoices, "choices of other rows", resize(1, 0, 9)},
          {&kGatherChoices, "no numbers by expert", rename(0, 1, Dim::Embed)},
          {&kScaleRows, "two gates", resize(1, 1, 2)},
          {&kScaleRows, "gates of other rows", resize(1, 0, 9)},
          {&kScaleRows, "two dtypes", retype(1, DType::F64)},
          {&kScaleRowsDx, "dz unlike y", resize(0, 1, 15)},
          {&kJoinHeads, "other rows", resize(1, 0, 9)},
          {&kJoinHeads, "two shared parts", resize(1, 1, 2)},
          {&kJoinHeads, "two dtypes", retype(1, DType::BF16)},
          {&kJoinHeads, "a without heads", rename(0, 1, Dim::Embed)},
          {&kJoinHeadsDx, "nothing left for b", attr("d1", int64_t{9})},
          {&kJoinHeadsDx, "dy without heads", rename(0, 1, Dim::Embed)}};
}

TEST(ExpertOps, Refused) { testing::expect_refusals(refusals(), expert_cases()); }

TEST(ExpertOps, WeightsStayWideWithNarrowRows) {
  OpCase c = op_case(kExpertActDx);
  for (const size_t i : {0, 1, 2}) c.in[i].dtype = DType::BF16;
  EXPECT_EQ(c.out()[0].dtype, DType::BF16);
  EXPECT_EQ(c.out()[2].dtype, DType::F32);
}

// A matmul of all routed rows with one expert's weight: what runs under perfect balance.
TEST(ExpertOps, CostOfGroupedGemms) {
  for (const OpDef* op : {&kGroupedLinear, &kGroupedLinearDx, &kGroupedLinearDw}) {
    const OpCase& c = op_case(*op);
    EXPECT_EQ(op->cost(c.in, c.out(), c.attrs).flops, 2.0 * 16 * 10 * 16) << op->name;
  }
}

// Token rows are sharded over the tensor ranks too; decisions are kept.
TEST(ExpertOps, DispatchIsSpreadAndKept) {
  for (const OpCase& c : expert_cases()) {
    for (const OpDim& d : c.op->dims(c.in, c.out(), c.attrs))
      if (d.key == Dim::Tokens) {
        EXPECT_EQ(d.spread, c.op != &kJoinHeads && c.op != &kJoinHeadsDx) << c.op->name;
        EXPECT_TRUE(d.any_row);
      }
    EXPECT_EQ(c.op->keep,
              c.op == &kRoute || c.op == &kExchangeCounts || c.op == &kSplitRows || c.op == &kNextPass)
        << c.op->name;
  }
}

// Sharding by experts comes after that by rows, and shards the weights too.
TEST(ExpertOps, RowsAndThenExperts) {
  for (const OpDef* op :
       {&kGroupedLinear, &kGroupedLinearDx, &kGroupedLinearDw, &kExpertAct, &kExpertActDx}) {
    SCOPED_TRACE(op->name);
    const OpCase& c = op_case(*op);
    const std::vector<OpDim> rule = op->dims(c.in, c.out(), c.attrs);
    ASSERT_GE(rule.size(), 2u);
    const OpDim &rows = rule[rule.size() - 2], &experts = rule.back();
    EXPECT_EQ(rows.key, Dim::Routed);
    EXPECT_EQ(experts.key, Dim::Experts);
    for (size_t i = 0; i < c.in.size(); ++i) {
      EXPECT_EQ(rows.in[i], c.in[i].dims[0].name == Dim::Experts ? kAbsent : 0);
      EXPECT_EQ(experts.in[i], 0);
    }
    for (const int at : experts.out) EXPECT_EQ(at, 0);
  }
}

struct Emitted {
  Graph graph;
  std::vector<std::string> ops;  // with their phases
};

// The backward pass of one op whose float operands are all parameters.
Emitted backward(const OpCase& c) {
  Emitted e;
  Graph& g = e.graph;
  g.num_blocks = 1;
  std::vector<ValueId> in;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const std::string name = "operand" + std::to_string(i);
    if (c.in[i].dtype == DType::I32)
      in.push_back(g.add_value({.name = name, .type = c.in[i], .kind = ValueKind::Input}));
    else
      in.push_back(g.add_param(name, c.in[i], {}));
  }
  const ValueId y = g.add_node(*c.op, in, c.attrs, Phase::F, 0).outputs[0];
  const ValueId dy = g.add_value({.name = "dy", .type = g.type(y), .kind = ValueKind::Input});
  differentiate(g, DType::F32, {{y, dy}});
  for (size_t n = 1; n < g.nodes().size(); ++n)
    e.ops.push_back(std::string(g.nodes()[n].op->name) + " " + std::string(to_string(g.nodes()[n].phase)));
  return e;
}

TEST(ExpertOps, Gradients) {
  using List = std::vector<std::string>;
  const std::vector<std::pair<const OpDef*, List>> expected = {
      {&kPack, {"unpack B"}},
      {&kUnpack, {"pack B"}},
      {&kPackWeights, {"unpack_weights B"}},
      {&kUnpackWeights, {"pack_weights B"}},
      {&kToExperts, {"to_tokens B"}},
      {&kToTokens, {"to_experts B"}},
      {&kGroupedLinear, {"grouped_linear_dx B", "grouped_linear_dw W"}},
      {&kExpertAct, {"expert_act_dx B"}},
      {&kExpertBias, {"expert_bias_dw W"}},
      {&kSpreadChoices, {"gather_choices B"}},
      {&kGatherChoices, {"spread_choices B"}},
      {&kScaleRows, {"scale_rows_dx B"}},
      {&kJoinHeads, {"join_heads_dx B"}}};
  std::set<const OpDef*> tested;
  for (const auto& [op, want] : expected) {
    tested.insert(op);
    for (const OpCase& c : expert_cases()) {
      if (c.op != op) continue;
      SCOPED_TRACE(std::string(op->name) + " " + to_string(c.attrs));
      const Emitted e = backward(c);
      EXPECT_EQ(e.ops, want);
      // A gradient has the type of the value that it belongs to, padded or not.
      for (const Param& p : e.graph.params())
        for (const ValueId grad : p.grads) EXPECT_EQ(e.graph.type(grad), e.graph.type(p.value));
    }
  }
  for (const OpCase& c : expert_cases())
    if (c.op->gradient != nullptr) {
      EXPECT_TRUE(tested.contains(c.op)) << c.op->name;
    }
}

TEST(ExpertOps, PlacementOpsHaveNoRule) {
  for (const OpDef* op : {&kRingShift, &kAllToAllV}) {
    EXPECT_EQ(find_op(op->name), op);
    EXPECT_EQ(op->dims, nullptr);
    EXPECT_EQ(op->gradient, nullptr);
    EXPECT_NE(op->cost, nullptr);
  }
}

}  // namespace
}  // namespace quintet::graph
