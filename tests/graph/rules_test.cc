// The sharding rules, checked against the types of one good use of every op. That a sharded op computes the
// same as the whole op is tested in room layout.
#include <gtest/gtest.h>

#include <set>

#include "graph/cache_ops.h"
#include "graph/fp8_ops.h"
#include "graph/support.h"

namespace quintet::graph {
namespace {

using testing::op_cases;
using testing::OpCase;

TEST(Rules, EveryOpWithARuleHasACase) {
  for (const OpDef* op : all_ops()) {
    bool found = op->dims == nullptr;
    for (const OpCase& c : op_cases()) found |= c.op == op;
    EXPECT_TRUE(found) << op->name << " has a rule, but no case in support.cc";
  }
}

// Rows that belong to tokens or experts under another name: they are split where those are.
bool follows(Dim dim, Dim key) {
  switch (key) {
    case Dim::Tokens:
      return dim == Dim::Slots || dim == Dim::Routed || dim == Dim::Counts;
    case Dim::Routed:
      return dim == Dim::Counts;
    case Dim::Experts:
      return dim == Dim::Routed || dim == Dim::Counts;
    default:
      return false;
  }
}

// Works on rows of experts: their tokens are not known.
bool is_routed(const OpDef& op) {
  return &op == &kRegroup || &op == &kGroupedLinear || &op == &kGroupedLinearDx || &op == &kGroupedLinearDw ||
         &op == &kExpertAct || &op == &kExpertActDx || &op == &kExpertBias || &op == &kExpertBiasDw;
}

// Works on sums per sequence, or on a capacity shared by a group of sequences.
bool by_sequence(const OpCase& c) {
  const AttrValue* scope = c.attrs.find("scope");
  return c.op == &kLimit || (scope != nullptr && *scope == AttrValue(std::string("sequence")));
}

// Text generation has no data ranks: its rows are never split.
bool is_generation(const OpDef& op) {
  return &op == &kCacheAppend || &op == &kCachedAttention || &op == &kTakeRows || &op == &kSample;
}

// Sums over all rows, the same on every rank.
bool is_undivided(const OpCase& c) {
  if (is_generation(*c.op)) return true;
  return c.op == &kRunningSum || ((c.op == &kBalanceLoss || c.op == &kBalanceDsums) && !by_sequence(c));
}

bool is_hop(const OpDef& op) { return &op == &kAttentionHop || &op == &kAttentionHopDx; }

// Positions of a rule's dim in the operands of one side.
void check_side(const std::vector<int>& at, const std::vector<Type>& types, bool outputs) {
  ASSERT_EQ(at.size(), types.size());
  for (size_t i = 0; i < at.size(); ++i) {
    if (at[i] == kAbsent || (outputs && at[i] == kReplicated)) continue;
    ASSERT_GE(at[i], 0);
    ASSERT_LT(at[i], types[i].num_dims());
  }
}

TEST(Rules, FitTheOperands) {
  for (const OpCase& c : op_cases()) {
    const std::vector<Type> out = c.out();
    std::set<Dim> keys;
    for (const OpDim& d : c.op->dims(c.in, out, c.attrs)) {
      SCOPED_TRACE(std::string(c.op->name) + " along " + std::string(to_string(d.key)));
      EXPECT_TRUE(keys.insert(d.key).second) << "the key stands twice";
      check_side(d.in, c.in, false);
      check_side(d.out, out, true);

      // Where the operand's dim is the key itself, all operands agree on its size; except that a ring hop
      // has a part of the rows in q, k and v, and all of them in the key indices, and that sums per sequence
      // have fewer rows than their terms.
      std::set<int64_t> sizes;
      bool divides_something = false;
      const auto visit = [&](const std::vector<int>& at, const std::vector<Type>& types) {
        for (size_t i = 0; i < at.size(); ++i) {
          if (at[i] < 0) continue;
          divides_something = true;
          const DimSize dim = types[i].dims[static_cast<size_t>(at[i])];
          if (dim.name == d.key) sizes.insert(dim.size);
          // The queries of a KV head follow it, and context shards token rows; no other dim is sharded under
          // another name.
          else
            EXPECT_TRUE((d.key == Dim::KvHeads && dim.name == Dim::Heads) ||
                        (d.key == Dim::Context && dim.name == Dim::Tokens) || follows(dim.name, d.key))
                << "divides " << to_string(dim.name);
        }
      };
      visit(d.in, c.in);
      visit(d.out, out);
      EXPECT_TRUE(divides_something);
      if (sizes.empty() && (d.key == Dim::Tokens || d.key == Dim::Experts)) continue;  // all only follow
      const bool sums = (c.op == &kBalanceSums || c.op == &kBalanceDx) && by_sequence(c);
      const bool two = (is_hop(*c.op) && d.key == Dim::Tokens) || sums;
      if (c.attrs.find("block") != nullptr)  // codes, and their factors
        EXPECT_LE(sizes.size(), 2u);
      else
        EXPECT_EQ(sizes.size(), d.key == Dim::Context ? 0u : two ? 2u : 1u);
    }
  }
}

// An operand that has the dim must be sharded along it: a rule that declares it whole would combine all of it
// with a part of the others.
TEST(Rules, NoOperandWithTheDimIsDeclaredWhole) {
  for (const OpCase& c : op_cases()) {
    const std::vector<Type> out = c.out();
    for (const OpDim& d : c.op->dims(c.in, out, c.attrs)) {
      SCOPED_TRACE(std::string(c.op->name) + " along " + std::string(to_string(d.key)));
      const auto visit = [&](const std::vector<int>& at, const std::vector<Type>& types) {
        for (size_t i = 0; i < types.size(); ++i)
          for (int j = 0; j < types[i].num_dims(); ++j)
            if (types[i].dims[static_cast<size_t>(j)].name == d.key) {
              EXPECT_EQ(at[i], j) << "operand " << i;
            }
      };
      visit(d.in, c.in);
      visit(d.out, out);
    }
  }
}

TEST(Rules, TokensDivideEverywhere) {
  for (const OpCase& c : op_cases()) {
    int tokens = 0;
    for (const OpDim& d : c.op->dims(c.in, c.out(), c.attrs))
      if (d.key == Dim::Tokens) {
        ++tokens;
        // Only attention and ops that count per sequence look at other rows, those of their own sequence.
        EXPECT_EQ(d.any_row, c.op != &kAttention && c.op != &kAttentionDx && c.op != &kQkvAttention &&
                                 c.op != &kQkvAttentionDx && !is_hop(*c.op) && !by_sequence(c))
            << c.op->name;
      }
    EXPECT_EQ(tokens, is_routed(*c.op) || is_undivided(c) ? 0 : 1) << c.op->name;
  }
}

// An output that takes over an input's memory must fill it exactly.
TEST(Rules, InPlaceResultsHaveTheTypeOfTheirInput) {
  for (const OpCase& c : op_cases()) {
    const std::vector<Type> out = c.out();
    if (is_hop(*c.op)) continue;
    for (const auto& [output, input] : c.op->in_place) {
      SCOPED_TRACE(c.op->name);
      ASSERT_LT(input, c.op->max_inputs);
      // An addend, which only programs have, or packed values.
      if (static_cast<size_t>(input) >= c.in.size() || static_cast<size_t>(output) >= out.size()) continue;
      EXPECT_EQ(out[static_cast<size_t>(output)], c.in[static_cast<size_t>(input)]);
    }
  }
}

// A hop's running results are last, at an index that depends on dropout: exactly these pairs match.
TEST(Rules, HopsUpdateTheLastOperands) {
  int hops = 0;
  for (const OpCase& c : op_cases()) {
    if (!is_hop(*c.op)) continue;
    ++hops;
    SCOPED_TRACE(std::string(c.op->name) + " " + to_string(c.attrs));
    const std::vector<Type> out = c.out();
    std::set<std::pair<int, int>> fit, want;
    for (const auto& [output, input] : c.op->in_place)
      if (static_cast<size_t>(input) < c.in.size() &&
          out[static_cast<size_t>(output)] == c.in[static_cast<size_t>(input)])
        fit.insert({output, input});
    const size_t running = c.attrs.integer("hop") == 0 ? 0 : c.op == &kAttentionHop ? 2 : 1;  // o, lse; dq
    for (size_t i = 0; i < running; ++i)
      want.insert({static_cast<int>(i), static_cast<int>(c.in.size() - running + i)});
    EXPECT_EQ(fit, want);
  }
  EXPECT_GT(hops, 0);
}

// The dims whose sharding leaves a partial result, per op: the reductions that a layout pays for.
TEST(Rules, PartialResults) {
  const auto partial = [](const OpCase& c) {
    std::set<std::string> found;
    for (const OpDim& d : c.op->dims(c.in, c.out(), c.attrs))
      for (size_t i = 0; i < d.out.size(); ++i)
        if (d.out[i] == kAbsent)
          found.insert(std::string(to_string(d.key)) + (d.reduction == Reduction::Max ? " max " : " sum ") +
                       std::to_string(i));
    return found;
  };
  using Set = std::set<std::string>;
  const std::vector<std::pair<const OpDef*, Set>> expected = {
      {&kEmbedding, {"vocab sum 0"}},
      {&kEmbeddingDw, {"tokens sum 0"}},
      {&kLinear, {"embed sum 0"}},
      {&kLinearDx, {"heads sum 0", "head_dim sum 0"}},
      {&kLinearDw, {"tokens sum 0"}},
      {&kBiasAdd, {}},
      {&kSumRows, {"tokens sum 0"}},
      {&kRmsNorm, {}},
      {&kAddRmsNorm, {}},
      {&kRmsNormDx, {}},
      {&kRmsNormDw, {"tokens sum 0"}},
      {&kRmsNormBackward, {"tokens sum 1"}},
      {&kLayerNorm, {}},
      {&kAddLayerNorm, {}},
      {&kLayerNormDx, {}},
      {&kLayerNormDw, {"tokens sum 0", "tokens sum 1"}},
      {&kLayerNormBackward, {"tokens sum 1", "tokens sum 2"}},
      {&kRope, {}},
      {&kRopeFirst, {}},
      {&kLinears, {}},
      {&kLinearsDx, {}},
      {&kLinearsDw, {"tokens sum 0", "tokens sum 1", "tokens sum 2"}},
      {&kQkvAttention, {}},
      {&kQkvAttentionDx, {}},
      {&kAttention, {}},
      {&kCacheAppend, {}},
      {&kCachedAttention, {}},
      {&kTakeRows, {}},
      {&kSample, {}},
      {&kLogProb, {}},
      {&kAttentionDx, {"heads sum 1", "heads sum 2", "context sum 1", "context sum 2"}},
      {&kAttentionHop, {}},
      {&kAttentionHopDx, {"heads sum 1", "heads sum 2", "context sum 1", "context sum 2"}},
      {&kJoinHeads, {}},
      {&kJoinHeadsDx, {"heads sum 1"}},
      {&kRoute, {}},
      {&kPack, {}},
      {&kUnpack, {}},
      {&kPackWeights, {}},
      {&kUnpackWeights, {}},
      {&kExchangeCounts, {}},
      {&kToExperts, {}},
      {&kToTokens, {}},
      {&kSplitRows, {}},
      {&kNextPass, {}},
      {&kRegroup, {}},
      {&kSumCopies, {}},
      {&kGroupedLinear, {"embed sum 0"}},
      {&kRouter, {}},
      {&kRouterDx, {}},
      {&kRouterDw, {"tokens sum 0"}},
      {&kSelect, {}},
      {&kSelectDx, {}},
      {&kLimit, {}},
      {&kRandomWeights, {}},
      {&kJoinChoices, {}},
      {&kExpertLoad, {"tokens sum 0"}},
      {&kBalanceSums, {"tokens sum 0"}},
      {&kBalanceDx, {}},
      {&kRunningSum, {}},
      {&kBalanceLoss, {"tokens sum 0"}},
      {&kBalanceDsums, {}},
      {&kZLoss, {"tokens sum 0"}},
      {&kZLossDx, {}},
      {&kGroupedLinearDx, {"expert_ffn sum 0"}},
      {&kGroupedLinearDw, {"routed sum 0"}},
      {&kExpertAct, {}},
      {&kExpertActDx, {"expert_ffn sum 2"}},
      {&kScaleRows, {}},
      {&kScaleRowsDx, {}},
      {&kSwiGlu, {}},
      {&kSwiGluDx, {}},
      {&kSwiGluBackward, {}},
      {&kGelu, {}},
      {&kGeluDx, {}},
      {&kScale, {}},
      {&kSoftCap, {}},
      {&kSoftCapDx, {}},
      {&kAttentionSink, {}},
      {&kAttentionSinkDw, {"tokens sum 0"}},
      {&kCenter, {}},
      {&kUnitNorm, {}},
      {&kUnitNormDx, {}},
      {&kClip, {}},
      {&kClipDx, {}},
      {&kPositionScale, {}},
      {&kSplitDocuments, {}},
      {&kExpertBias, {}},
      {&kExpertBiasDw, {"routed sum 0"}},
      {&kSpreadChoices, {}},
      {&kGatherChoices, {}},
      {&kAdd, {}},
      {&kDropout, {}},
      {&kJitter, {}},
      {&kCast, {}},
      {&kRowMax, {"vocab max 0"}},
      {&kRowSumExp, {"vocab sum 0"}},
      {&kCrossEntropy, {"tokens sum 0"}},
      {&kLossGrad, {"tokens sum 0"}},  // the loss; along vocab it is the same on all shards
      // The second is a sum, which the op's rule in room layout says.
      {&kQuantize, {"tokens max 0", "tokens max 1", "embed max 0", "embed max 1"}},
      {&kScaledLinear, {"embed sum 0"}},
      {&kScaledLinearDx, {"heads sum 0", "head_dim sum 0"}},
      {&kScaledLinearDw, {"tokens sum 0"}},
      {&kQuantizeBlocks, {"tokens sum 0", "embed sum 0"}},
      {&kBlockLinear, {"embed sum 0"}},
      {&kBlockLinearDx, {"heads sum 0", "head_dim sum 0"}},
      {&kBlockLinearDw, {"tokens sum 0"}},
      {&kRmsNormQuantize, {}},
      {&kAddRmsNormQuantize, {}},
      {&kSwiGluQuantize, {}},
      {&kSwiGluBackwardQuantize, {}},
      {&kRmsNormAgainQuantize, {}},
  };
  size_t with_rule = 0;
  for (const OpDef* op : all_ops()) with_rule += op->dims != nullptr;
  EXPECT_EQ(expected.size(), with_rule);
  for (const auto& [op, want] : expected) EXPECT_EQ(partial(testing::op_case(*op)), want) << op->name;
}

}  // namespace
}  // namespace quintet::graph
