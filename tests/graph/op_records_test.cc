// The parts of an op's record other than types, gradient and dims, which have their own tests.
#include <gtest/gtest.h>

#include <set>

#include "graph/op.h"

namespace quintet::graph {
namespace {

constexpr DimSize kTokens{Dim::Tokens, 6}, kEmbed{Dim::Embed, 5}, kFfn{Dim::Ffn, 7}, kRouted{Dim::Routed, 12},
    kExperts{Dim::Experts, 3}, kCounts{Dim::Counts, 3};

Type f32(std::vector<DimSize> dims) { return {DType::F32, std::move(dims)}; }

TEST(OpRecords, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const OpDef* op : all_ops()) EXPECT_TRUE(names.insert(op->name).second) << op->name;
}

TEST(OpRecords, ModelsUseOpsOfAClass) {
  for (const OpDef* op : all_ops()) {
    if (op->dims != nullptr && op != &kCast) {
      EXPECT_NE(op->op_class, OpClass::Other) << op->name;
    }
  }
}

// Only ops that the partitioner inserts have no dims to shard.
TEST(OpRecords, PlacementOpsHaveNoDims) {
  for (const OpDef* op : all_ops()) {
    if (op->op_class == OpClass::Placement) {
      EXPECT_EQ(op->dims, nullptr) << op->name;
    }
  }
}

TEST(OpRecords, UpdatesBelongToTheOptimizer) {
  for (const OpDef* op : all_ops()) {
    if (op->elementwise() || op->step.kind == StepKind::ParameterNorms) {
      EXPECT_EQ(op->op_class, OpClass::Optimizer) << op->name;
    }
  }
}

TEST(OpRecords, AnAddendIsOneMoreOperand) {
  for (const OpDef* op : all_ops()) {
    if (op->takes_addend) {
      EXPECT_GT(op->max_inputs, op->min_inputs) << op->name;
    }
  }
}

TEST(OpRecords, AGemmHasTheFlopsOfItsOp) {
  const Type x = f32({kTokens, kEmbed}), w = f32({kFfn, kEmbed}), y = f32({kTokens, kFfn});
  const Type rows = f32({kRouted, kEmbed}), hidden = f32({kRouted, kFfn}), counts{DType::I32, {kCounts}};
  const Type experts = f32({kExperts, kFfn, kEmbed});
  struct Case {
    const OpDef* op;
    std::vector<Type> in, out;
    OpPass pass;
  };
  const std::vector<Case> cases = {
      {&kLinear, {x, w}, {y}, OpPass::Forward},
      {&kLinearDx, {y, w}, {x}, OpPass::InputGradient},
      {&kLinearDw, {y, x}, {w}, OpPass::WeightGradient},
      {&kGroupedLinear, {rows, experts, counts}, {hidden}, OpPass::Forward},
      {&kGroupedLinearDx, {hidden, experts, counts}, {rows}, OpPass::InputGradient},
      {&kGroupedLinearDw, {hidden, rows, counts}, {experts}, OpPass::WeightGradient}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.op->name);
    ASSERT_NE(c.op->gemm, nullptr);
    EXPECT_EQ(c.op->pass, c.pass);
    const Gemm g = c.op->gemm(c.in, c.out, {});
    EXPECT_DOUBLE_EQ(2 * g.m * g.n * g.k * g.groups, c.op->cost(c.in, c.out, {}).flops);
  }
}

}  // namespace
}  // namespace quintet::graph
