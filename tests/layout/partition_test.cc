#include "layout/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "graph/verify.h"
#include "layout/support.h"

namespace quintet::layout {
namespace {

using namespace testing;
using graph::Phase;

bool moves_data(const graph::Node& n) {
  return n.op == &graph::kAllReduce || n.op == &graph::kAllGather || n.op == &graph::kReduceScatter ||
         n.op == &graph::kAllToAll;
}

int count(const Local& l, const graph::OpDef& op, const std::function<bool(const graph::Node&)>& where) {
  int n = 0;
  for (const graph::Node& node : l.local.graph.nodes()) n += node.op == &op && where(node);
  return n;
}

// Transitions have the block of their consumer; here they count for the block of their producer.
int in_block(const Local& l, const graph::OpDef& op, int block, bool forward) {
  return count(l, op, [&](const graph::Node& n) {
    const graph::NodeId producer = l.local.graph.value(n.inputs[0]).producer;
    const int made_in = producer.valid() ? l.local.graph.nodes()[producer.index()].block : n.block;
    return made_in == block && (n.phase == Phase::F) == forward;
  });
}

const Placement& placement_of(const Local& l, const std::string& name) {
  return l.local.placements[l.local.graph.find(name).index()];
}

TEST(Partition, OneRankMovesNothing) {
  const Local l = partitioned({});
  EXPECT_EQ(l.local.graph.nodes().size(), l.logical.nodes().size());
  for (const graph::Node& n : l.local.graph.nodes()) EXPECT_FALSE(moves_data(n)) << n.op->name;
}

TEST(Partition, DataParallelMovesNothingInsideAMicroBatch) {
  for (const int zero : {0, 3}) {
    const Local l = partitioned({.dp_replicate = 2, .dp_shard = 3, .zero = zero});
    for (const graph::Node& n : l.local.graph.nodes()) EXPECT_FALSE(moves_data(n)) << n.op->name;
    EXPECT_EQ(l.local.graph.type(l.local.graph.find("ids")).size(0), 48 / 6);
  }
}

TEST(Partition, TensorParallelHasTwoReductionsPerBlockAndPass) {
  const Local l = partitioned({.tp = 2});
  for (const int block : {1, 2}) {
    EXPECT_EQ(in_block(l, graph::kAllReduce, block, true), 2);
    EXPECT_EQ(in_block(l, graph::kAllReduce, block, false), 2)
        << "gradients of q, k, v or gate, up do not share theirs";
  }
  EXPECT_EQ(in_block(l, graph::kAllReduce, 0, true), 1);  // embedding rows of a sharded vocabulary
  EXPECT_EQ(in_block(l, graph::kAllReduce, 0, false), 0);
  // The head's maximum, its sums, and its input gradient, which is computed in the forward phase.
  EXPECT_EQ(in_block(l, graph::kAllReduce, 3, true) + in_block(l, graph::kAllReduce, 3, false), 3);
  for (const graph::OpDef* op : {&graph::kAllGather, &graph::kReduceScatter, &graph::kAllToAll})
    EXPECT_EQ(count(l, *op, [](const graph::Node&) { return true; }), 0) << op->name;
}

TEST(Partition, SequenceParallelScattersAndGathers) {
  const Local l = partitioned({.tp = 2, .sequence_parallel = true});
  for (const int block : {1, 2}) {
    EXPECT_EQ(in_block(l, graph::kAllReduce, block, true) + in_block(l, graph::kAllReduce, block, false), 0);
    EXPECT_EQ(in_block(l, graph::kAllGather, block, true), 2);
    EXPECT_EQ(in_block(l, graph::kReduceScatter, block, true), 2);
    // Two for incoming gradients, two for inputs that the weight gradients need whole again.
    EXPECT_EQ(in_block(l, graph::kAllGather, block, false), 4);
    EXPECT_EQ(in_block(l, graph::kReduceScatter, block, false), 2);
  }
}

// Under sequence parallelism values kept from forward to backward hold only a part of the rows, unless
// another of their dims is sharded.
TEST(Partition, NoGatheredCopyLivesFromForwardToBackward) {
  const Local l = partitioned({.tp = 2, .sequence_parallel = true});
  const graph::Graph& g = l.local.graph;
  EXPECT_GT(std::ranges::count_if(
                g.nodes(), [](const auto& n) { return n.phase == Phase::F && n.op == &graph::kAllGather; }),
            0);
  for (const graph::Node& n : g.nodes()) {
    if (n.phase == Phase::F) continue;
    for (const graph::ValueId in : n.inputs) {
      const graph::NodeId producer = g.value(in).producer;
      if (!producer.valid()) continue;
      const graph::Node& made = g.nodes()[producer.index()];
      EXPECT_FALSE(made.phase == Phase::F && made.op == &graph::kAllGather) << n.op->name;
    }
  }
}

TEST(Partition, QueryKeyValueGradientsShareOneReduction) {
  const Local l = partitioned({.tp = 2});
  const graph::Graph& g = l.local.graph;
  int shared = 0;
  for (const graph::Node& n : g.nodes()) {
    if (n.op != &graph::kAllReduce || n.phase == Phase::F) continue;
    const graph::Node& producer = g.nodes()[g.value(n.inputs[0]).producer.index()];
    if (producer.block == 3) continue;  // the head has one input gradient
    ++shared;
    EXPECT_EQ(producer.op, &graph::kAdd);
    EXPECT_FALSE(l.local.placements[n.inputs[0].index()].partial.empty());
  }
  EXPECT_EQ(shared, 2 * 2) << "attention and MLP of each block";
}

TEST(Partition, FewerKvHeadsThanTensorRanks) {
  const Local l = partitioned({.tp = 4}, {.heads = 8, .kv_heads = 2});
  const AtomList tp = l.layout.mesh.axis(Axis::Tp);
  ASSERT_EQ(tp.size(), 2u);  // 2 x 2: heads use both atoms, KV heads the outer one
  EXPECT_EQ(placement_of(l, "blocks.0.wq.weight").dims[0], tp);
  EXPECT_EQ(placement_of(l, "blocks.0.wk.weight").dims[0], AtomList{tp[0]});
  const auto over = [&](const AtomList& atoms) {
    const std::vector<int64_t> wanted(atoms.begin(), atoms.end());
    return count(l, graph::kAllReduce, [&](const graph::Node& n) {
      return n.phase != Phase::F && n.block == 1 && n.attrs.integers("atoms") == wanted;
    });
  };
  for (const int block : {1, 2}) EXPECT_EQ(in_block(l, graph::kAllReduce, block, true), 2);
  EXPECT_EQ(count(l, graph::kAllGather, [](const graph::Node&) { return true; }), 0);
  // Ranks that share a KV head see different queries: the gradients of k and v are sums over the inner atom,
  // reduced before rope and the matmuls use them.
  EXPECT_EQ(over(tp), 2);
  EXPECT_EQ(over({tp[1]}), 2);
  const graph::Graph& g = l.local.graph;
  for (const char* name : {"blocks.0.wq.weight", "blocks.0.wk.weight"}) {
    const graph::Param& w = *g.find_param(g.find(name));
    ASSERT_EQ(w.grads.size(), 1u);
    EXPECT_TRUE(l.local.placements[w.grads[0].index()].partial.empty()) << name;
  }
}

TEST(Partition, TiedTableHasTwoContributionsPlacedAlike) {
  for (const bool sequence_parallel : {false, true}) {
    const Local l =
        partitioned({.dp_shard = 2, .tp = 2, .sequence_parallel = sequence_parallel}, {.tied = true});
    const graph::Graph& g = l.local.graph;
    const graph::Param& table = *g.find_param(g.find("embed.weight"));
    ASSERT_EQ(table.grads.size(), 2u);
    EXPECT_EQ(l.local.placements[table.grads[0].index()], l.local.placements[table.grads[1].index()]);
    EXPECT_EQ(l.local.placements[table.grads[0].index()].partial, l.layout.data());
  }
}

TEST(Partition, LocalSizesFollowPlacements) {
  for (const bool sequence_parallel : {false, true}) {
    const Local l = partitioned({.dp_replicate = 2, .tp = 4, .sequence_parallel = sequence_parallel},
                                {.heads = 8, .kv_heads = 2});
    EXPECT_NO_THROW(graph::verify(l.local.graph, "partition", true));
    for (size_t i = 0; i < l.local.graph.values().size(); ++i) {
      const graph::Type& global = l.logical.type(l.local.origin[i]);
      EXPECT_EQ(l.local.graph.values()[i].type, local_type(global, l.local.placements[i], l.layout.mesh));
    }
    EXPECT_EQ(placement_of(l, "embed.weight").dims[0], l.layout.mesh.axis(Axis::Tp));
    EXPECT_EQ(l.local.graph.type(l.local.graph.find("embed.weight")).size(0),
              10);  // 37 rows on 4 ranks, padded
  }
}

TEST(Partition, KeepsTheChunkOfTheLoss) {
  graph::Graph logical = small_llama({});
  logical.row_chunk = 5;
  EXPECT_EQ(
      partition(logical, make_layout({.tp = 2}, config::Model{.heads = 4, .kv_heads = 4})).graph.row_chunk,
      5);
}

TEST(Partition, SizesThatDoNotDivideAreRefused) {
  EXPECT_THROW(partitioned({.tp = 8}), base::UserError);  // 4 heads
  EXPECT_THROW(partitioned({.tp = 3}, {.heads = 4, .kv_heads = 4}), base::UserError);
}

}  // namespace
}  // namespace quintet::layout
