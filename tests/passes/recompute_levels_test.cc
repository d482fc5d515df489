#include "passes/recompute_levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "graph/op.h"
#include "graph/verify.h"
#include "models/build.h"
#include "passes/recompute.h"

namespace quintet::passes {
namespace {

graph::Graph tiny(config::Family family, int64_t layers = 2) {
  config::Model m;
  m.family = family;
  m.layers = layers, m.embed = 16, m.ffn = 48, m.heads = 4, m.kv_heads = 4, m.head_dim = 4, m.vocab = 32;
  m.rope_theta = family == config::Family::Llama ? 10000 : 0;
  m.max_positions = family == config::Family::Gpt2 ? 8 : 0;
  return models::build(m, {.tokens = 16, .seq_len = 8, .loss_chunk = 0});
}

Prices prices_of(const graph::Graph& g) {
  Prices p;
  for (const graph::Value& v : g.values()) p.bytes.push_back(v.type.bytes());
  for (const graph::Node& n : g.nodes())
    p.nanos.push_back(
        n.op->cost ? static_cast<int64_t>(
                         n.op->cost(graph::input_types(g, n), graph::output_types(g, n), n.attrs).flops)
                   : 1);
  return p;
}

// Bytes kept from forward to backward when the nodes are recomputed: derived independently from the rewritten
// graph.
int64_t kept_bytes(const graph::Graph& g, const std::vector<size_t>& nodes, int block) {
  Marks marks(g.nodes().size(), 0);
  for (const size_t n : nodes) marks[n] = 1;
  const graph::Graph after = recompute(g, marks);
  int64_t sum = 0;
  for (size_t i = 0; i < after.values().size(); ++i) {
    const graph::Value& v = after.values()[i];
    if (!v.producer.valid()) continue;
    const graph::Node& p = after.nodes()[v.producer.index()];
    if (p.phase != graph::Phase::F || p.block != block) continue;
    const bool kept = std::any_of(after.nodes().begin(), after.nodes().end(), [&](const graph::Node& n) {
      return n.phase != graph::Phase::F &&
             std::find(n.inputs.begin(), n.inputs.end(), graph::ValueId(static_cast<int32_t>(i))) !=
                 n.inputs.end();
    });
    if (kept) sum += v.type.bytes();
  }
  return sum;
}

TEST(RecomputeLevels, StartsWithNothingAndEveryStepIsWorthLess) {
  for (const config::Family family : {config::Family::Llama, config::Family::Gpt2}) {
    const graph::Graph g = tiny(family);
    const std::vector<Level> levels = recompute_levels(g, 1, prices_of(g));
    ASSERT_GE(levels.size(), 4u);
    EXPECT_TRUE(levels[0].nodes.empty());
    EXPECT_EQ(levels[0].nanos, 0);
    double worth = std::numeric_limits<double>::infinity();
    for (size_t i = 1; i < levels.size(); ++i) {
      ASSERT_LT(levels[i].kept_bytes, levels[i - 1].kept_bytes);
      ASSERT_GT(levels[i].nanos, levels[i - 1].nanos);
      const double now = static_cast<double>(levels[i - 1].kept_bytes - levels[i].kept_bytes) /
                         static_cast<double>(levels[i].nanos - levels[i - 1].nanos);
      EXPECT_LE(now, worth * 1.01);  // an op's index breaks ties
      worth = now;
    }
    for (const Level& l : levels) EXPECT_EQ(l.kept_bytes, kept_bytes(g, l.nodes, 1));
  }
}

// Against all sets of a block's ops: none is below the levels' line, and the last keeps the least.
TEST(RecomputeLevels, NoSetOfOpsIsBetter) {
  const graph::Graph g = tiny(config::Family::Llama, 1);
  const Prices prices = prices_of(g);
  const std::vector<Level> levels = recompute_levels(g, 1, prices);
  const Marks may = recomputable(g);
  std::vector<size_t> nodes;
  for (size_t i = 0; i < may.size(); ++i)
    if (may[i]) nodes.push_back(i);
  ASSERT_LE(nodes.size(), 16u);
  int64_t least = levels[0].kept_bytes;
  for (uint32_t set = 0; set < (1u << nodes.size()); set += 1 + set % 3) {  // two of three, to save time
    std::vector<size_t> chosen;
    int64_t nanos = 0;
    for (size_t i = 0; i < nodes.size(); ++i)
      if (set >> i & 1) chosen.push_back(nodes[i]), nanos += prices.nanos[nodes[i]];
    const int64_t bytes = kept_bytes(g, chosen, 1);
    least = std::min(least, bytes);
    for (size_t i = 1; i < levels.size(); ++i) {
      const double slope = static_cast<double>(levels[i - 1].kept_bytes - levels[i].kept_bytes) /
                           static_cast<double>(levels[i].nanos - levels[i - 1].nanos);
      const double line =
          static_cast<double>(levels[i].kept_bytes) + slope * static_cast<double>(levels[i].nanos);
      EXPECT_GE(static_cast<double>(bytes) + slope * static_cast<double>(nanos), line * (1 - 1e-3));
    }
  }
  EXPECT_GE(least, levels.back().kept_bytes);
}

// Decisions are never recomputed, and values that another block reads are kept.
TEST(RecomputeLevels, KeepsDecisionsAndBoundaries) {
  graph::Graph g = tiny(config::Family::Llama);
  graph::OpDef decision = graph::kSwiGlu;
  decision.keep = true;
  for (graph::Node& n : g.nodes())
    if (n.op == &graph::kSwiGlu) n.op = &decision;
  const Marks may = recomputable(g);
  const std::vector<Level> levels = recompute_levels(g, 1, prices_of(g));
  for (size_t i = 0; i < may.size(); ++i) {
    const graph::Node& n = g.nodes()[i];
    const bool last_add = n.op == &graph::kAdd && i + 1 < may.size() && g.nodes()[i + 1].block != n.block;
    if (n.op == &decision || n.phase != graph::Phase::F || last_add) {
      EXPECT_FALSE(may[i]) << n.op->name;
      EXPECT_FALSE(std::binary_search(levels.back().nodes.begin(), levels.back().nodes.end(), i));
    }
  }
  config::Memory full;
  full.recompute = config::RecomputeKind::Full;
  const graph::Graph after = recompute(g, chosen(g, full));
  int64_t decisions = 0, norms = 0;
  for (const graph::Node& n : after.nodes()) {
    decisions += n.op == &decision;
    norms += n.op == &graph::kRmsNorm;
  }
  EXPECT_EQ(decisions, 2);  // once per block
  EXPECT_EQ(norms, 9);      // twice per block and again, and the final one
}

// By virtual stage: labels 1 and 2 are in the first of two stages, 3 and 4 in the second.
TEST(Recompute, TheFirstBlocksOfEveryStage) {
  const graph::Graph g = tiny(config::Family::Llama, 4);
  config::Memory memory{.recompute = config::RecomputeKind::Full, .recompute_first = 1};
  const auto blocks = [&](const std::vector<int>& stages) {
    const Marks marks = chosen(g, memory, stages);
    std::set<int> found;
    for (size_t i = 0; i < marks.size(); ++i)
      if (marks[i]) found.insert(g.nodes()[i].block);
    return found;
  };
  EXPECT_EQ(blocks({0, 0, 0, 1, 1, 1}), (std::set<int>{1, 3}));
  EXPECT_EQ(blocks({}), (std::set<int>{1}));
  memory.recompute_first = 2;
  EXPECT_EQ(blocks({0, 0, 0, 0, 1, 1}), (std::set<int>{1, 2, 4}));
  EXPECT_EQ(blocks({}), (std::set<int>{1, 2}));
  memory.recompute_first = 0;
  EXPECT_EQ(blocks({0, 0, 0, 1, 1, 1}), (std::set<int>{1, 2, 3, 4}));
}

// Of a chunk only the first block's input is kept: what its other blocks pass on is recomputed too.
TEST(Recompute, ChunksOfSeveralBlocks) {
  const graph::Graph g = tiny(config::Family::Llama, 5);
  const auto kept_by_block = [&](int64_t chunk, const std::vector<int>& stages) {
    const config::Memory memory{.recompute = config::RecomputeKind::Full, .recompute_chunk = chunk};
    const graph::Graph out = recompute(g, chosen(g, memory, stages), chunks_of(g, memory, stages));
    graph::verify(out, "recompute");
    std::set<size_t> kept;  // results of the forward pass that the backward pass reads
    for (const graph::Node& n : out.nodes())
      for (const graph::ValueId v : n.inputs)
        if (const graph::NodeId p = out.value(v).producer; p.valid() && n.phase != graph::Phase::F)
          if (out.nodes()[p.index()].phase == graph::Phase::F) kept.insert(v.index());
    std::vector<int> counts(6, 0);  // embedding, five blocks; not of the head
    for (const size_t v : kept) {
      const int block = out.nodes()[out.values()[v].producer.index()].block;
      if (block < 6) ++counts[static_cast<size_t>(block)];
    }
    return counts;
  };
  using Counts = std::vector<int>;
  EXPECT_EQ(kept_by_block(1, {}), (Counts{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(kept_by_block(2, {}), (Counts{1, 0, 1, 0, 1, 1}));
  EXPECT_EQ(kept_by_block(5, {}), (Counts{1, 0, 0, 0, 0, 1}));
  // Chunks end where a stage ends: blocks 1 to 3 and 4 to 5.
  EXPECT_EQ(kept_by_block(2, {0, 0, 0, 0, 1, 1, 1}), (Counts{1, 0, 1, 1, 0, 1}));
}

// What every block recomputes is what the whole model does under recompute_ops with the same words.
TEST(Recompute, OtherOpsInEveryBlock) {
  const graph::Graph g = tiny(config::Family::Llama, 4);
  using config::RecomputeKind;
  const auto marks_of = [&](const config::Memory& memory, int block) {
    std::vector<size_t> list;
    const Marks marks = chosen(g, memory);
    for (size_t i = 0; i < marks.size(); ++i)
      if (marks[i] && g.nodes()[i].block == block + 1) list.push_back(i);
    return list;
  };
  const config::Memory memory{
      .recompute = RecomputeKind::Selective,
      .recompute_layers = {{{0, 2}, {"attention", "rope"}}, {{1}, {"all"}}, {{3}, {}}}};
  const config::Memory words{.recompute = RecomputeKind::Selective, .recompute_ops = {"attention", "rope"}};
  EXPECT_EQ(marks_of(memory, 0), marks_of(words, 0));
  EXPECT_EQ(marks_of(memory, 2), marks_of(words, 2));
  EXPECT_EQ(marks_of(memory, 1), marks_of({.recompute = RecomputeKind::Full}, 1));
  EXPECT_EQ(marks_of(memory, 3), marks_of({.recompute = RecomputeKind::Selective}, 3));
  EXPECT_FALSE(marks_of(memory, 0).empty());
  EXPECT_NE(marks_of(memory, 0).size(), marks_of(memory, 1).size());
  const config::Memory one{.recompute = RecomputeKind::Selective, .recompute_layers = {{{1}, {"norm"}}}};
  EXPECT_FALSE(marks_of(one, 1).empty());
  for (const int other : {0, 2, 3}) EXPECT_TRUE(marks_of(one, other).empty()) << "block " << other;
}

TEST(Recompute, OpsByTheNamesOfTheirWeights) {
  const graph::Graph g = tiny(config::Family::Llama, 2);
  const config::Memory memory{.recompute = config::RecomputeKind::Selective,
                              .recompute_layers = {{{1}, {"*.up.weight", "blocks.1.ffn_norm.*"}}}};
  const Marks marks = chosen(g, memory);
  std::set<std::string> read;
  for (size_t i = 0; i < marks.size(); ++i)
    if (marks[i])
      for (const graph::ValueId v : g.nodes()[i].inputs)
        if (g.value(v).kind == graph::ValueKind::Param) read.insert(g.value(v).name);
  EXPECT_EQ(read, (std::set<std::string>{"blocks.1.ffn.up.weight", "blocks.1.ffn_norm.weight"}));
  const config::Memory wrong{.recompute = config::RecomputeKind::Selective,
                             .recompute_layers = {{{0}, {"blocks.1.ffn.up.weight"}}}};
  EXPECT_THROW(chosen(g, wrong), base::UserError);
}

}  // namespace
}  // namespace quintet::passes
