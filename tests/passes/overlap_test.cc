#include "passes/overlap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "config/recipe.h"
#include "graph/builder.h"
#include "graph/fuse_adds.h"
#include "graph/op.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "layout/layout.h"
#include "models/build.h"
#include "passes/recompute.h"

namespace quintet::passes {
namespace {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;

struct MessageCase {
  int64_t experts = 0, shared = 0;
  int64_t dp = 1, tp = 1, cp = 1, ep = 1;
  bool sequence_parallel = false;
  config::RecomputeKind recompute = config::RecomputeKind::None;
};

layout::LocalGraph local_with_messages(const MessageCase& c) {
  config::Model m;
  m.layers = 2, m.embed = 256, m.ffn = 1024, m.heads = 4, m.kv_heads = 4, m.head_dim = 64, m.vocab = 512;
  m.rope_theta = 10000;
  m.moe.experts = c.experts, m.moe.top_k = c.experts > 0 ? 2 : 0, m.moe.ffn = c.experts > 0 ? 512 : 0;
  m.moe.shared_ffn = c.shared;
  config::Parallel parallel;
  parallel.dp_shard = c.dp, parallel.tp = c.tp, parallel.cp = c.cp, parallel.ep = c.ep;
  parallel.sequence_parallel = c.sequence_parallel;
  const Graph plain = models::build(m, {.tokens = 512 * c.dp, .seq_len = 256, .loss_chunk = 0});
  config::Memory memory;
  memory.recompute = c.recompute;
  return layout::partition(recompute(plain, chosen(plain, memory)), layout::make_layout(parallel, m));
}

Graph overlapped(const MessageCase& c, bool splits_backward = false) {
  layout::LocalGraph local = overlap(local_with_messages(c), splits_backward);
  graph::verify(local.graph, "overlap", /*local=*/true);
  EXPECT_EQ(local.divisions.size(), local.graph.nodes().size());
  return local.graph;
}

// Of the nodes of block 1 in one pass.
std::vector<const Node*> block(const Graph& g, bool forward) {
  std::vector<const Node*> out;
  for (const Node& n : g.nodes())
    if (n.block == 1 && (n.phase == Phase::F) == forward) out.push_back(&n);
  return out;
}

bool reads(const Node& n, ValueId v) {
  return std::find(n.inputs.begin(), n.inputs.end(), v) != n.inputs.end();
}

// FLOPs that are in order between a message and the first node that needs its result.
double flops_beside(const Graph& g, const std::vector<const Node*>& nodes, size_t message) {
  double flops = 0;
  for (size_t i = message + 1; i < nodes.size() && !reads(*nodes[i], nodes[message]->outputs[0]); ++i)
    if (nodes[i]->op->cost != nullptr)
      flops +=
          nodes[i]
              ->op->cost(graph::input_types(g, *nodes[i]), graph::output_types(g, *nodes[i]), nodes[i]->attrs)
              .flops;
  return flops;
}

// The exchanges of rows (not of counts or weights), in order.
std::vector<size_t> exchanges(const Graph& g, const std::vector<const Node*>& nodes) {
  std::vector<size_t> out;
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i]->op == &graph::kAllToAllV && g.type(nodes[i]->outputs[0]).num_dims() == 2) out.push_back(i);
  return out;
}

const MessageCase kShared{.experts = 4, .shared = 512, .dp = 2, .ep = 2};

TEST(Overlap, SharedExpertsComputeWhileRowsAreInFlight) {
  const Graph before = local_with_messages(kShared).graph, after = overlapped(kShared);
  for (const bool forward : {true, false}) {
    SCOPED_TRACE(forward ? "forward" : "backward");
    const auto was = block(before, forward), is = block(after, forward);
    const auto sent_before = exchanges(before, was), sent = exchanges(after, is);
    ASSERT_EQ(sent_before.size(), 2u);
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(flops_beside(before, was, sent_before[0]), 0);
    EXPECT_GT(flops_beside(after, is, sent[0]), 1e6);
  }
}

TEST(Overlap, GradientsOfWeightsComputeWhileThoseOfRowsReturn) {
  const MessageCase c{
      .experts = 4, .dp = 2, .ep = 2};  // nothing shared: only gradients of weights can hide them
  const Graph before = local_with_messages(c).graph, after = overlapped(c);
  const auto was = block(before, false), is = block(after, false);
  EXPECT_EQ(flops_beside(before, was, exchanges(before, was)[1]), 0);
  EXPECT_GT(flops_beside(after, is, exchanges(after, is)[1]), 1e6);
}

TEST(Overlap, TensorParallelGathersOfGradientsAreHidden) {
  const MessageCase c{.tp = 2, .sequence_parallel = true};
  const Graph before = local_with_messages(c).graph, after = overlapped(c);
  const auto hidden = [](const Graph& g) {
    const auto nodes = block(g, false);
    int count = 0;
    for (size_t i = 0; i < nodes.size(); ++i)
      count += nodes[i]->op == &graph::kAllGather && flops_beside(g, nodes, i) > 1e6;
    return count;
  };
  EXPECT_GT(hidden(after), hidden(before));
}

// What is computed from what, whatever the order of nodes.
std::multiset<std::string> lines(const Graph& g) {
  std::multiset<std::string> out;
  const std::string text = graph::to_text(g);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    out.insert(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

const MessageCase kMessageCases[] = {
    kShared,
    {.experts = 4, .shared = 512, .tp = 2, .ep = 2, .sequence_parallel = true},
    {.experts = 4, .dp = 2, .ep = 2, .recompute = config::RecomputeKind::Full},
    {.tp = 2, .sequence_parallel = true, .recompute = config::RecomputeKind::Selective},
    {.tp = 4},
    {.cp = 2}};

TEST(Overlap, OnlyTheOrderChanges) {
  for (const MessageCase& c : kMessageCases)
    for (const bool splits : {false, true}) {
      const Graph before = local_with_messages(c).graph, after = overlapped(c, splits);
      EXPECT_EQ(lines(before), lines(after));
      // Adds that matmuls perform: as many as before, or more where an addend is there earlier.
      const auto fused = [](const Graph& g) {
        const graph::FusedAdds f = graph::fuse_adds(g);
        return std::count(f.absorbed.begin(), f.absorbed.end(), 1);
      };
      EXPECT_GE(fused(after), fused(before));
      for (size_t b = 1; b < after.nodes().size(); ++b)  // forward blocks ascend, backward blocks descend
        if (after.nodes()[b - 1].phase == Phase::F && after.nodes()[b].phase == Phase::F) {
          EXPECT_LE(after.nodes()[b - 1].block, after.nodes()[b].block);
        }
    }
}

TEST(Overlap, ASplitBackwardPassIsOrderedWithoutItsWeightGradients) {
  const Graph g = overlapped(kShared, /*splits_backward=*/true);
  const auto nodes = block(g, false);
  const auto first = std::find_if(nodes.begin(), nodes.end(), [](const Node* n) {
    return n->phase == Phase::W && n->op->dims != nullptr;
  });
  ASSERT_NE(first, nodes.end());
  EXPECT_TRUE(std::all_of(first, nodes.end(), [](const Node* n) { return n->phase == Phase::W; }));
}

TEST(Overlap, BlocksWithoutMessagesAndHopsOfARingStay) {
  for (const MessageCase& c : {MessageCase{}, MessageCase{.experts = 4, .shared = 512}}) {
    const Graph before = local_with_messages(c).graph, after = overlapped(c);
    EXPECT_EQ(graph::to_text(before), graph::to_text(after));
  }
}

// Gathered again for a gradient of a weight, a saved value takes memory: not from the beginning of the block.
TEST(Overlap, SavedValuesAreGatheredWhereTheyWere) {
  const Graph g = overlapped({.tp = 2, .sequence_parallel = true});
  const auto nodes = block(g, false);
  int compute = 0, gathered = 0;
  for (const Node* n : nodes) {
    compute += n->op->dims != nullptr;
    if (n->op != &graph::kAllGather) continue;
    const graph::NodeId from = g.value(n->inputs[0]).producer;
    if (g.nodes()[from.index()].phase != Phase::F) continue;
    ++gathered;
    EXPECT_GT(compute, 1);
  }
  EXPECT_EQ(gathered, 2);  // inputs of attention and of the feed-forward network
}

// A block that uses its weights twice. The first contribution to a gradient overwrites it, so contributions
// stay in the order of Param::grads.
TEST(Overlap, ContributionsToAGradientStayInOrder) {
  const graph::DimSize vocab{graph::Dim::Vocab, 512}, embed{graph::Dim::Embed, 256},
      ffn{graph::Dim::Ffn, 1024};
  graph::Builder b({.tokens = 512, .seq_len = 256, .loss_chunk = 0});
  ValueId x = b.embedding(b.weight("embed.weight", {vocab, embed}, 0.02), b.ids());
  b.next_block();
  const ValueId norm = b.norm_weight("norm.weight", embed), up = b.weight("up.weight", {ffn, embed}, 0.02),
                down = b.weight("down.weight", {embed, ffn}, 0.02);
  for (int i = 0; i < 2; ++i) x = b.add(x, b.linear(b.gelu(b.linear(b.rms_norm(x, norm, 1e-5), up)), down));
  b.next_block();
  b.head(x, b.weight("head.weight", {vocab, embed}, 0.02));
  config::Parallel parallel;
  parallel.tp = 2, parallel.sequence_parallel = true;
  const Graph logical = b.finish();
  const Graph g =
      overlap(layout::partition(logical, layout::make_layout(parallel, layout::demands_of(logical))), false)
          .graph;
  int pairs = 0;
  for (const graph::Param& p : g.params())
    for (size_t i = 1; i < p.grads.size(); ++i, ++pairs)
      EXPECT_LT(g.value(p.grads[i - 1]).producer.index(), g.value(p.grads[i]).producer.index());
  EXPECT_EQ(pairs, 3);
}

}  // namespace
}  // namespace quintet::passes
