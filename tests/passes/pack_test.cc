#include "passes/pack.h"

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
  config::RecomputeKind recompute = config::RecomputeKind::None;
  int64_t kv_heads = 2, tp = 1, cp = 1;
  bool qk_norm = false, bias = false;
  std::vector<std::string> freeze = {};
};

constexpr int kLayers = 2;

layout::LocalGraph local_of(const Case& c) {
  config::Model m;
  m.layers = kLayers, m.embed = 16, m.ffn = 48, m.heads = 4, m.kv_heads = c.kv_heads, m.head_dim = 4,
  m.vocab = 32;
  m.rope_theta = 10000;
  m.qk_norm = c.qk_norm;
  m.qkv_bias = c.bias;
  std::vector<graph::ParamGroup> groups;
  for (const std::string& pattern : c.freeze) groups.push_back({pattern, false});
  const graph::Graph plain =
      models::build(m, {.tokens = 16, .seq_len = 8, .loss_chunk = 0, .groups = groups});
  config::Memory memory;
  memory.recompute = c.recompute;
  config::Parallel parallel;
  parallel.tp = c.tp;
  parallel.cp = c.cp;
  return layout::partition(recompute(plain, chosen(plain, memory)), layout::make_layout(parallel, m));
}

graph::Graph packed(const Case& c) {
  layout::LocalGraph local = pack(local_of(c));
  graph::verify(local.graph, "pack", /*local=*/true);
  EXPECT_EQ(local.divisions.size(), local.graph.nodes().size());
  EXPECT_EQ(local.origin.size(), local.graph.values().size());
  EXPECT_EQ(local.placements.size(), local.graph.values().size());
  for (const graph::Param& p : local.graph.params())
    for (const graph::ValueId g : p.grads) {
      const graph::NodeId producer = local.graph.value(g).producer;
      EXPECT_TRUE(producer.valid());
    }
  return local.graph;
}

int count(const graph::Graph& g, const graph::OpDef& op) {
  return static_cast<int>(
      std::count_if(g.nodes().begin(), g.nodes().end(), [&](const graph::Node& n) { return n.op == &op; }));
}

struct Counts {
  int linears, dx, dw, attention, attention_dx, ropes, gates;
  friend bool operator==(const Counts&, const Counts&) = default;
};
Counts counts(const graph::Graph& g) {
  int gates = 0;  // SwiGLU and its gradient with packed gate and up
  for (const graph::Node& n : g.nodes())
    gates += (n.op == &graph::kSwiGlu && n.inputs.size() == 1) ||
             (n.op == &graph::kSwiGluDx && n.inputs.size() == 2);
  return {count(g, graph::kLinears),
          count(g, graph::kLinearsDx),
          count(g, graph::kLinearsDw),
          count(g, graph::kQkvAttention),
          count(g, graph::kQkvAttentionDx),
          count(g, graph::kRopeFirst),
          gates};
}
// Per block: attention, and gate and up.
constexpr Counts kAll{2 * kLayers, 2 * kLayers, 2 * kLayers, kLayers, kLayers, 2 * kLayers, 2 * kLayers};
constexpr Counts kGates{kLayers, kLayers, kLayers, 0, 0, 0, 2 * kLayers};

TEST(Pack, ProjectionsArePacked) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    const graph::Graph g = packed({.kv_heads = kv_heads});
    EXPECT_EQ(counts(g), kAll);
    EXPECT_EQ(count(g, graph::kRope) + count(g, graph::kAttention) + count(g, graph::kAttentionDx), 0);
    // The rest: the output projections of attention and of SwiGLU, and the head.
    EXPECT_EQ(count(g, graph::kLinear), 2 * kLayers + 1);
    EXPECT_EQ(count(g, graph::kLinearDw), 2 * kLayers + 1);
    for (const graph::Node& n : g.nodes())
      if (n.op == &graph::kRopeFirst) {
        EXPECT_EQ(n.attrs.integer("heads"), 4 + kv_heads);
      }
  }
  EXPECT_EQ(counts(packed({.tp = 2})), kAll);
}

// Recomputed values are packed like the first ones. Rotations are not recomputed: the rotated values replace
// their operands in memory.
TEST(Pack, RecomputedValuesArePackedToo) {
  Counts again = kAll;
  again.gates += kLayers;
  EXPECT_EQ(counts(packed({.recompute = config::RecomputeKind::Selective})), again);
  EXPECT_EQ(counts(packed({.recompute = config::RecomputeKind::Full})),
            (Counts{4 * kLayers, 2 * kLayers, 2 * kLayers, 2 * kLayers, kLayers, 3 * kLayers, 3 * kLayers}));
}

TEST(Pack, LeavesWhatDoesNotFit) {
  EXPECT_EQ(counts(packed({.qk_norm = true})), kGates);
  EXPECT_EQ(counts(packed({.bias = true})), kGates);
  EXPECT_EQ(counts(packed({.cp = 2})), kGates);
  EXPECT_EQ(counts(packed({.freeze = {"blocks.*.attn.wk.weight"}})), kGates);
  EXPECT_EQ(counts(packed({.freeze = {"blocks.*.ffn.up.weight", "blocks.*.attn.wv.weight"}})), Counts{});
  // Tensor ranks share KV heads: their weights' gradients are sums over ranks.
  EXPECT_EQ(counts(packed({.kv_heads = 2, .tp = 4})), kGates);
}

// A forward pass is packed only if the values recomputed for its gradient are.
TEST(Pack, EverywhereOrNowhere) {
  constexpr Counts kGatesAgain{2 * kLayers, kLayers, kLayers, 0, 0, 0, 3 * kLayers};
  const auto full = config::RecomputeKind::Full;
  EXPECT_EQ(counts(packed({.recompute = full, .freeze = {"blocks.*.attn.wk.weight"}})), kGatesAgain);
  EXPECT_EQ(counts(packed({.recompute = full, .kv_heads = 2, .tp = 4})), kGatesAgain);
}

}  // namespace
}  // namespace quintet::passes
