#include "passes/fold.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "config/recipe.h"
#include "graph/op.h"
#include "graph/verify.h"
#include "layout/layout.h"
#include "models/build.h"
#include "passes/recompute.h"

namespace quintet::passes {
namespace {

struct Case {
  config::Family family = config::Family::Llama;
  config::RecomputeKind recompute = config::RecomputeKind::Selective;
  std::vector<std::string> ops = {"norm", "activation"};
  int64_t tp = 1;
  bool sequence_parallel = false;
};

layout::LocalGraph local_of(const Case& c) {
  config::Model m;
  m.family = c.family;
  m.layers = 2, m.embed = 16, m.ffn = 48, m.heads = 4, m.kv_heads = 4, m.head_dim = 4, m.vocab = 32;
  m.rope_theta = c.family == config::Family::Llama ? 10000 : 0;
  m.max_positions = c.family == config::Family::Gpt2 ? 8 : 0;
  const graph::Graph plain = models::build(m, {.tokens = 16, .seq_len = 8, .loss_chunk = 0});
  config::Memory memory;
  memory.recompute = c.recompute;
  memory.recompute_ops = c.ops;
  config::Parallel parallel;
  parallel.tp = c.tp;
  parallel.sequence_parallel = c.sequence_parallel;
  return layout::partition(recompute(plain, chosen(plain, memory)), layout::make_layout(parallel, m));
}

int count(const graph::Graph& g, const graph::OpDef& op) {
  return static_cast<int>(
      std::count_if(g.nodes().begin(), g.nodes().end(), [&](const graph::Node& n) { return n.op == &op; }));
}
int count_again(const graph::Graph& g) {
  return static_cast<int>(std::count_if(g.nodes().begin(), g.nodes().end(), [](const graph::Node& n) {
    return (n.op == &graph::kRmsNormBackward || n.op == &graph::kLayerNormBackward) &&
           n.attrs.integer("again") != 0;
  }));
}

// Folded, verified, with one division entry per node and every gradient computed once.
graph::Graph folded(const Case& c, bool backward = true) {
  layout::LocalGraph local = fold(local_of(c), {.backward = backward});
  graph::verify(local.graph, "fold", /*local=*/true);
  EXPECT_EQ(local.divisions.size(), local.graph.nodes().size());
  for (const graph::Param& p : local.graph.params())
    for (const graph::ValueId g : p.grads) {
      const graph::NodeId producer = local.graph.value(g).producer;
      EXPECT_TRUE(producer.valid());
      if (!producer.valid()) continue;
      const auto& outputs = local.graph.nodes()[producer.index()].outputs;
      EXPECT_EQ(std::count(outputs.begin(), outputs.end(), g), 1);
    }
  return std::move(local.graph);
}

TEST(Fold, RecomputedNormsAndSwiGluAreWrittenByTheirBackward) {
  const graph::Graph before = local_of({}).graph, g = folded({});
  EXPECT_EQ(count(before, graph::kRmsNorm), 9);  // two blocks of two, twice, and the last
  EXPECT_EQ(count(before, graph::kSwiGlu), 4);
  EXPECT_EQ(count(g, graph::kRmsNorm), 5);
  EXPECT_EQ(count(g, graph::kRmsNormDx) + count(g, graph::kRmsNormDw), 0);
  EXPECT_EQ(count(g, graph::kRmsNormBackward), 5);
  EXPECT_EQ(count_again(g), 4);
  EXPECT_EQ(count(g, graph::kSwiGlu), 2);
  EXPECT_EQ(count(g, graph::kSwiGluDx), 0);
  EXPECT_EQ(count(g, graph::kSwiGluBackward), 2);
  // Statistics come from the forward pass, and a weight gradient follows the op that rewrites its operand.
  for (const graph::Node& n : g.nodes())
    if (n.op == &graph::kRmsNormBackward) {
      EXPECT_EQ(g.nodes()[g.value(n.inputs[3]).producer.index()].phase, graph::Phase::F);
    }
}

TEST(Fold, KeptValuesAreNotRewritten) {
  const graph::Graph g = folded({.recompute = config::RecomputeKind::None});
  EXPECT_EQ(count(g, graph::kRmsNormBackward), 5);
  EXPECT_EQ(count_again(g), 0);
  EXPECT_EQ(count(g, graph::kSwiGluBackward), 0);
  EXPECT_EQ(count(g, graph::kSwiGluDx), 2);
}

// Whole-block recompute: the norms' results are needed for their own gradients, so the two cannot be fused.
TEST(Fold, WhatTheGradientNeedsIsComputedBeforeIt) {
  const graph::Graph g = folded({.recompute = config::RecomputeKind::Full, .ops = {}});
  EXPECT_EQ(count(g, graph::kRmsNorm), 9);
  EXPECT_EQ(count_again(g), 0);
  EXPECT_EQ(count(g, graph::kRmsNormBackward), 5);
}

TEST(Fold, BAndWStaySeparateWhereTheyRunSeparately) {
  const graph::Graph before = local_of({}).graph, g = folded({}, false);
  EXPECT_EQ(count(g, graph::kRmsNormBackward) + count(g, graph::kSwiGluBackward), 0);
  EXPECT_EQ(count(g, graph::kRmsNorm), count(before, graph::kRmsNorm));
  EXPECT_EQ(count(g, graph::kCrossEntropy), 1);
}

// With tensor ranks the gradient of a norm's result is sent: weight gradients run meanwhile.
TEST(Fold, WorkThatOverlapsAMessageIsNotFolded) {
  for (const bool sequence_parallel : {false, true}) {
    const graph::Graph g = folded({.tp = 2, .sequence_parallel = sequence_parallel});
    EXPECT_EQ(count_again(g), 0) << sequence_parallel;
    EXPECT_EQ(count(g, graph::kSwiGluBackward), 2) << sequence_parallel;
  }
}

TEST(Fold, TheLossIsOneOpWhereTheVocabularyIsWhole) {
  const graph::Graph whole = folded({}), cut = folded({.tp = 2});
  EXPECT_EQ(count(whole, graph::kCrossEntropy), 1);
  EXPECT_EQ(count(whole, graph::kRowMax) + count(whole, graph::kRowSumExp) + count(whole, graph::kLossGrad),
            0);
  EXPECT_EQ(count(cut, graph::kCrossEntropy), 0);
  EXPECT_EQ(count(cut, graph::kLossGrad), 1);
}

TEST(Fold, LayerNormsAreFoldedLikeRmsNorms) {
  const Case gpt2 = {.family = config::Family::Gpt2};
  const graph::Graph before = local_of(gpt2).graph, g = folded(gpt2);
  EXPECT_EQ(count(before, graph::kLayerNorm), 9);
  EXPECT_EQ(count(g, graph::kLayerNormDx) + count(g, graph::kLayerNormDw), 0);
  EXPECT_EQ(count(g, graph::kLayerNormBackward), 5);
  EXPECT_EQ(count_again(g), 4);
  EXPECT_EQ(count(g, graph::kLayerNorm) + count(g, graph::kAddLayerNorm), 5);
  for (const graph::Node& n : g.nodes())
    if (n.op == &graph::kLayerNormBackward) {
      for (const size_t i : {size_t{4}, size_t{5}})
        EXPECT_EQ(g.nodes()[g.value(n.inputs[i]).producer.index()].phase, graph::Phase::F);
    }
  const graph::Graph kept =
      folded({.family = config::Family::Gpt2, .recompute = config::RecomputeKind::None});
  EXPECT_EQ(count(kept, graph::kLayerNormBackward), 5);
  EXPECT_EQ(count_again(kept), 0);
}

// A matmul followed by a bias cannot add the residual; the norm after it can, but not in the next block.
TEST(Fold, AResidualWithoutAMatmulIsAddedByTheNextNorm) {
  const Case gpt2 = {.family = config::Family::Gpt2, .recompute = config::RecomputeKind::None};
  const graph::Graph before = local_of(gpt2).graph;
  for (const bool backward : {false, true}) {
    const graph::Graph g = folded(gpt2, backward);
    EXPECT_EQ(count(g, graph::kAddLayerNorm), 2);
    EXPECT_EQ(count(g, graph::kLayerNorm), 3);
    EXPECT_EQ(count(g, graph::kAdd), count(before, graph::kAdd) - 2);
    for (const graph::Node& n : g.nodes())
      if (n.op == &graph::kAddLayerNorm) {
        EXPECT_EQ(n.phase, graph::Phase::F);
        EXPECT_EQ(n.outputs.size(), 4u);
        for (const graph::ValueId out : n.outputs)
          EXPECT_EQ(g.value(out).producer.index(), static_cast<size_t>(&n - g.nodes().data()));
      }
  }
}

// Of the residuals of a Llama, those that a matmul adds stay with it; with tensor ranks there is a message in
// between.
TEST(Fold, AMatmulKeepsItsResidual) {
  EXPECT_EQ(count(folded({}), graph::kAddRmsNorm), 0);
  for (const bool sequence_parallel : {false, true})
    EXPECT_EQ(count(folded({.tp = 2, .sequence_parallel = sequence_parallel}), graph::kAddRmsNorm), 2)
        << sequence_parallel;
}

// Whole-block recompute: its sum and norm are recomputed together as well.
TEST(Fold, RecomputedSumsAreFoldedToo) {
  const graph::Graph g =
      folded({.family = config::Family::Gpt2, .recompute = config::RecomputeKind::Full, .ops = {}});
  EXPECT_EQ(count(g, graph::kAddLayerNorm), 4);
  EXPECT_EQ(count_again(g), 0);
}

}  // namespace
}  // namespace quintet::passes
