// Inference, refusals and sharding of the ops of routers and load balancing, and gradients through the choice
// of experts.
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "graph/autodiff.h"
#include "graph/refusals.h"

namespace quintet::graph {
namespace {

using testing::attr;
using testing::inferred;
using testing::op_case;
using testing::OpCase;
using testing::Refusal;
using testing::rename;
using testing::resize;
using testing::retype;
using testing::router_cases;
using testing::text;

OpCase scoped(const OpDef& op, std::string_view scope) {
  for (const OpCase& c : router_cases())
    if (c.op == &op && c.attrs.text("scope") == scope) return c;
  base::fail_internal("no case of {} with scope {}", op.name, scope);
}

TEST(RouterOps, Inferred) {
  EXPECT_EQ(inferred(kRouter), "f32[tokens=8, routes=6]");
  EXPECT_EQ(inferred(kRouterDx), "f32[tokens=8, embed=16]");
  EXPECT_EQ(inferred(kRouterDw), "f32[routes=6, embed=16]");
  EXPECT_EQ(inferred(kSelect), "f32[tokens=8, routes=6], i32[tokens=8, choices=2], f32[tokens=8, choices=2]");
  EXPECT_EQ(inferred(kSelectDx), "f32[tokens=8, routes=6]");
  EXPECT_EQ(inferred(kLimit), "i32[tokens=8, choices=2]");
  EXPECT_EQ(inferred(kRandomWeights), "f64[tokens=8, choices=2]");
  EXPECT_EQ(inferred(kJoinChoices), "i32[tokens=8, choices=8]");
  EXPECT_EQ(inferred(kExpertLoad), "f64[flat=8]");
  EXPECT_EQ(text(scoped(kBalanceSums, "micro").out()), "f32[flat=12]");
  EXPECT_EQ(text(scoped(kBalanceSums, "sequence").out()), "f32[tokens=2, flat=12]");
  EXPECT_EQ(text(scoped(kBalanceDx, "micro").out()), "f32[tokens=8, routes=6]");
  EXPECT_EQ(text(scoped(kBalanceDx, "sequence").out()), "f32[tokens=8, routes=6]");
  EXPECT_EQ(inferred(kRunningSum), "f64[flat=12]");
  EXPECT_EQ(text(scoped(kBalanceLoss, "sequence").out()), "f64[], f32[tokens=2, flat=12]");
  EXPECT_EQ(text(scoped(kBalanceLoss, "global").out()), "f64[], f32[flat=12]");
  EXPECT_EQ(text(scoped(kBalanceDsums, "global").out()), "f32[flat=12]");
  EXPECT_EQ(inferred(kZLoss), "f64[]");
  EXPECT_EQ(inferred(kZLossDx), "f32[tokens=8, routes=6]");
}

TEST(RouterOps, NarrowRowsHaveWideLogits) {
  OpCase forward = op_case(kRouter), dx = op_case(kRouterDx), dw = op_case(kRouterDw);
  forward.in[0].dtype = forward.in[1].dtype = dx.in[1].dtype = dw.in[1].dtype = DType::BF16;
  EXPECT_EQ(text(forward.out()), "f32[tokens=8, routes=6]");
  EXPECT_EQ(text(dx.out()), "bf16[tokens=8, embed=16]");
  EXPECT_EQ(text(dw.out()), "f32[routes=6, embed=16]");
}

TEST(RouterOps, UpdateBias) {
  const Type load{DType::F64, {{Dim::Flat, 8}}}, ok{DType::F64, {}}, bias{DType::F32, {{Dim::Routes, 6}}},
      other{DType::F32, {{Dim::Routes, 8}}};
  EXPECT_EQ(text(kUpdateBias.infer({load, ok, bias}, {{"rate", 0.001}})), "f32[routes=6]");
  EXPECT_THROW(kUpdateBias.infer({load, ok, other}, {{"rate", 0.001}}), base::UserError);
  EXPECT_EQ(kUpdateBias.in_place, (std::vector<std::pair<int, int>>{{0, 2}}));
}

std::vector<Refusal> refusals() {
  const std::string strange = "strange";
  return {{&kRouter, "another inner size", resize(0, 1, 17)},
          {&kRouter, "two dtypes", retype(1, DType::BF16)},
          {&kRouter, "weights without routes", rename(1, 0, Dim::Experts)},
          {&kRouterDx, "other experts", resize(0, 1, 5)},
          {&kRouterDx, "narrow logits", retype(0, DType::BF16)},
          {&kRouterDx, "logits without routes", rename(0, 1, Dim::Vocab)},
          {&kRouterDw, "other rows", resize(1, 0, 9)},
          {&kRouterDw, "narrow logits", retype(0, DType::BF16)},
          {&kSelect, "narrow logits", [](OpCase& c) { c.in[0].dtype = c.in[1].dtype = DType::BF16; }},
          {&kSelect, "logits without routes", rename(0, 1, Dim::Vocab)},
          {&kSelect, "a bias of other experts", resize(1, 0, 5)},
          {&kSelect, "a bias that is not announced", attr("biased", int64_t{0})},
          {&kSelect, "no positions to balance by", attr("force_balance", int64_t{1})},
          {&kSelect, "real positions",
           [](OpCase& c) {
             c.attrs.set("force_balance", int64_t{1});
             c.in.push_back({DType::F32, {{Dim::Tokens, 8}}});
           }},
          {&kSelect, "no routes to repeat", attr("column", int64_t{0})},
          {&kSelect, "routes with too few columns",
           [](OpCase& c) {
             c.attrs.set("column", int64_t{5});
             c.in.push_back({DType::I32, {{Dim::Tokens, 8}, {Dim::Choices, 6}}});
           }},
          {&kSelect, "routes of other rows",
           [](OpCase& c) {
             c.attrs.set("column", int64_t{0});
             c.in.push_back({DType::I32, {{Dim::Tokens, 9}, {Dim::Choices, 6}}});
           }},
          {&kSelect, "routes and positions",
           [](OpCase& c) {
             c.attrs.set("column", int64_t{0});
             c.attrs.set("force_balance", int64_t{1});
             c.in.push_back({DType::I32, {{Dim::Tokens, 8}, {Dim::Choices, 6}}});
           }},
          {&kJoinChoices, "choices of other rows", resize(1, 0, 9)},
          {&kJoinChoices, "real choices", retype(1, DType::F32)},
          {&kSelect, "an unknown score", attr("score", strange)},
          {&kSelect, "an unknown order", attr("order", strange)},
          {&kSelect, "a softmax over chosen sigmoids",
           [](OpCase& c) {
             c.attrs.set("score", std::string("sigmoid"));
             c.attrs.set("order", std::string("top_k_first"));
           }},
          {&kSelect, "no choice", attr("k", int64_t{0})},
          {&kSelect, "more choices than experts", attr("k", int64_t{7})},
          {&kSelect, "uneven groups", attr("groups", int64_t{4})},
          {&kSelect, "more groups than there are", attr("groups_kept", int64_t{4})},
          {&kSelect, "groups with too few experts",
           [](OpCase& c) {
             c.attrs.set("k", int64_t{3});
             c.attrs.set("groups_kept", int64_t{1});
           }},
          {&kSelectDx, "choices of other rows", resize(1, 0, 9)},
          {&kSelectDx, "real choices", retype(1, DType::F32)},
          {&kSelectDx, "weights unlike the choices", resize(2, 1, 3)},
          {&kSelectDx, "scores unlike the logits", resize(3, 1, 5)},
          {&kSelectDx, "a gradient that is not announced", attr("has_dscores", int64_t{0})},
          {&kSelectDx, "no gradient at all",
           [](OpCase& c) {
             c.attrs.set("has_dscores", int64_t{0});
             c.attrs.set("has_dweights", int64_t{0});
             c.in.resize(2);
           }},
          {&kSelectDx, "an unknown score", attr("score", strange)},
          {&kLimit, "weights unlike the choices", resize(1, 1, 3)},
          {&kLimit, "narrow weights", retype(1, DType::BF16)},
          {&kLimit, "half a sequence", attr("seq_len", int64_t{5})},
          {&kLimit, "half a group", attr("group", int64_t{3})},
          {&kLimit, "a sequence that is not 2 * cp chunks", attr("cp", int64_t{3})},
          {&kLimit, "no capacity", attr("capacity", int64_t{0})},
          {&kLimit, "an unknown policy", attr("policy", strange)},
          {&kRandomWeights, "real choices", retype(0, DType::F32)},
          {&kRandomWeights, "samples of other rows", resize(1, 0, 9)},
          {&kRandomWeights, "positions of other rows", resize(2, 0, 9)},
          {&kRandomWeights, "a key of 32 bits", retype(3, DType::I32)},
          {&kExpertLoad, "kept unlike chosen", resize(1, 1, 3)},
          {&kExpertLoad, "scores of other rows", resize(2, 0, 9)},
          {&kExpertLoad, "narrow scores", retype(2, DType::BF16)},
          {&kBalanceSums, "choices of other rows", resize(1, 0, 9)},
          {&kBalanceSums, "narrow scores", retype(0, DType::BF16)},
          {&kBalanceSums, "an unknown scope", attr("scope", strange)},
          {&kBalanceSums, "half a sequence",
           [](OpCase& c) {
             c.attrs.set("scope", std::string("sequence"));
             c.attrs.set("seq_len", int64_t{3});
           }},
          {&kBalanceDx, "an odd number of sums", resize(0, 0, 11)},
          {&kBalanceDx, "sums of all rows for each sequence", attr("scope", std::string("sequence"))},
          {&kBalanceDx, "real choices", retype(1, DType::F32)},
          {&kRunningSum, "narrow sums", retype(0, DType::BF16)},
          {&kRunningSum, "sums that are not flat", rename(0, 0, Dim::Routes)},
          {&kBalanceLoss, "other experts", attr("experts", int64_t{5})},
          {&kBalanceLoss, "sums of all rows", attr("scope", std::string("micro"))},
          {&kBalanceLoss, "no running sum",
           [](OpCase& c) {
             c.attrs.set("scope", std::string("global"));
             c.in[0].dims.erase(c.in[0].dims.begin());
           }},
          {&kBalanceLoss, "a narrow running sum",
           [](OpCase& c) {
             c.attrs.set("scope", std::string("global"));
             c.in[0].dims.erase(c.in[0].dims.begin());
             c.in.push_back(c.in[0]);
           }},
          {&kBalanceLoss, "no tokens", attr("tokens", int64_t{0})},
          {&kBalanceDsums, "a narrow gradient", retype(1, DType::F32)},
          {&kBalanceDsums, "the slope of another scope", attr("scope", std::string("micro"))},
          {&kZLoss, "logits without routes", rename(0, 1, Dim::Vocab)},
          {&kZLoss, "narrow logits", retype(0, DType::BF16)},
          {&kZLossDx, "a narrow gradient", retype(1, DType::F32)},
          {&kZLossDx, "narrow logits", retype(0, DType::BF16)}};
}

TEST(RouterOps, Refused) { testing::expect_refusals(refusals(), router_cases()); }

// Choices are sharded over the tensor ranks too where rows are independent; ops on sequences do not split
// them.
TEST(RouterOps, SpreadOrWholeSequences) {
  for (const OpCase& c : router_cases())
    for (const OpDim& d : c.op->dims(c.in, c.out(), c.attrs)) {
      ASSERT_EQ(d.key, Dim::Tokens) << c.op->name;
      EXPECT_EQ(d.spread, d.any_row) << c.op->name << " " << to_string(c.attrs);
    }
}

TEST(RouterOps, DecisionsAndSumsAreKept) {
  std::set<std::string_view> kept;
  for (const OpCase& c : router_cases())
    if (c.op->keep) kept.insert(c.op->name);
  EXPECT_EQ(kept, (std::set<std::string_view>{"select", "limit", "random_weights", "expert_load",
                                              "running_sum", "balance_loss"}));
}

TEST(RouterOps, Cost) {
  for (const OpDef* op : {&kRouter, &kRouterDx, &kRouterDw}) {
    const OpCase& c = op_case(*op);
    EXPECT_EQ(op->cost(c.in, c.out(), c.attrs).flops, 2.0 * 8 * 6 * 16) << op->name;
  }
}

// A gradient for the weights, for the scores, or for both makes one select_dx that takes just these; the bias
// gets none.
TEST(RouterOps, GradientsThroughAChoice) {
  for (const int which : {1, 2, 3}) {
    Graph g;
    g.num_blocks = 1;
    const OpCase& c = op_case(kSelect);
    const ValueId logits = g.add_param("logits", c.in[0], {});
    const ValueId bias = g.add_value({.name = "bias", .type = c.in[1], .kind = ValueKind::State});
    const std::vector<ValueId> out = g.add_node(kSelect, {logits, bias}, c.attrs, Phase::F, 0).outputs;
    std::vector<std::pair<ValueId, ValueId>> seeds;
    std::vector<ValueId> want = {logits, out[1]};
    for (const size_t i : {2, 0}) {
      if (!(which & (i == 2 ? 1 : 2))) continue;
      seeds.push_back(
          {out[i],
           g.add_value({.name = "d" + std::to_string(i), .type = g.type(out[i]), .kind = ValueKind::Input})});
      want.push_back(seeds.back().second);
    }
    differentiate(g, DType::F32, seeds);
    ASSERT_EQ(g.nodes().size(), 2u) << which;
    const Node& back = g.nodes()[1];
    EXPECT_EQ(back.op, &kSelectDx);
    EXPECT_EQ(back.inputs, want) << which;
    EXPECT_EQ(back.attrs.integer("has_dweights"), which & 1 ? 1 : 0);
    EXPECT_EQ(back.attrs.integer("has_dscores"), which & 2 ? 1 : 0);
    EXPECT_EQ(back.phase, Phase::B);
  }
}

}  // namespace
}  // namespace quintet::graph
