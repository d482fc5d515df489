#include "passes/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "config/recipe.h"
#include "graph/fp8_ops.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "layout/layout.h"
#include "models/build.h"
#include "passes/fold.h"
#include "passes/fold_codes.h"
#include "passes/pack.h"
#include "passes/recompute.h"

namespace quintet::passes::quantize_test {
namespace {

using graph::DType;
using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;

config::Model model() {
  config::Model m;
  m.layers = 2, m.embed = 32, m.ffn = 48, m.heads = 4, m.kv_heads = 2, m.head_dim = 16, m.vocab = 64;
  m.rope_theta = 10000;
  return m;
}

Graph build(const config::Model& m, DType compute = DType::BF16) {
  return models::build(m, {.compute = compute, .tokens = 32, .seq_len = 16, .loss_chunk = 8});
}

Graph quantised(const QuantizeOptions& options = {}, DType compute = DType::BF16) {
  Graph g = quantize(build(model(), compute), options);
  graph::verify(g, "quantize");
  return g;
}

int count(const Graph& g, const graph::OpDef& op) {
  return static_cast<int>(
      std::count_if(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return n.op == &op; }));
}

// Values of the forward pass that later phases read.
int64_t kept_bytes(const Graph& g) {
  std::set<ValueId> kept;
  for (const Node& n : g.nodes())
    for (const ValueId v : n.inputs) {
      const graph::NodeId p = g.value(v).producer;
      if (n.phase != Phase::F && p.valid() && g.nodes()[p.index()].phase == Phase::F) kept.insert(v);
    }
  int64_t bytes = 0;
  for (const ValueId v : kept) bytes += g.type(v).bytes();
  return bytes;
}

TEST(QuantizePass, AllLinearsOfTheBlocksAndNothingElse) {
  const Graph g = quantised();
  // q, k, v, o, gate, up, down in two blocks; the head stays.
  EXPECT_EQ(count(g, graph::kScaledLinear), 14);
  EXPECT_EQ(count(g, graph::kScaledLinearDx), 14);
  EXPECT_EQ(count(g, graph::kScaledLinearDw), 14);
  EXPECT_EQ(count(g, graph::kLinear), 1);
  EXPECT_EQ(count(g, graph::kLinearDx), 1);
  EXPECT_EQ(count(g, graph::kLinearDw), 1);
}

// q, k and v share their scales, as do gate and up; every other linear has its own.
TEST(QuantizePass, SetsShareScales) {
  const Graph g = quantised();
  EXPECT_EQ(g.scales.size(), 2u * 4 * 3);
  std::map<int64_t, int> weights;
  for (const Node& n : g.nodes())
    if (n.op == &graph::kScaledLinear) ++weights[n.attrs.integer("b_scale")];
  std::vector<int> sizes;
  for (const auto& [scale, uses] : weights) sizes.push_back(uses);
  EXPECT_EQ(sizes, (std::vector<int>{3, 1, 2, 1, 3, 1, 2, 1}));
  for (const Node& n : g.nodes()) {
    if (n.op != &graph::kQuantize) continue;
    const graph::ScaleDecl& scale = g.scales[static_cast<size_t>(n.attrs.integer("scale"))];
    EXPECT_EQ(n.attrs.text("format"), scale.of == graph::ScaleOf::Gradient ? "e5m2" : "e4m3");
    EXPECT_EQ(scale.largest, scale.of == graph::ScaleOf::Gradient ? 57344 : 448);
  }
}

// Every operand of every GEMM is measured once, and maxima come last.
TEST(QuantizePass, MeasuresEveryOperandOnce) {
  const Graph g = quantised();
  std::vector<int> amax(g.scales.size(), 0), rounded(amax);
  bool maxima = false;
  for (const graph::StepSum& s : g.step_sums) {
    if (s.kind == graph::SumKind::Amax) ++amax[static_cast<size_t>(s.scale)], maxima = true;
    if (s.kind != graph::SumKind::Rounded) continue;
    EXPECT_FALSE(maxima);
    ++rounded[static_cast<size_t>(s.scale)];
  }
  // x once; weights and gradients of each linear of the set.
  EXPECT_EQ(amax, (std::vector<int>{1, 3, 3, 1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 3, 3, 1, 1, 1, 1, 2, 2, 1, 1, 1}));
  EXPECT_EQ(amax, rounded);
}

TEST(QuantizePass, KeepsCodesInsteadOfValues) {
  const Graph plain = build(model()), g = quantised();
  EXPECT_LT(kept_bytes(g), kept_bytes(plain));
  // Attention keeps its result anyway: it is quantised again instead of being kept twice.
  int again = 0;
  for (const Node& n : g.nodes())
    if (n.op == &graph::kQuantize && n.phase == Phase::B && n.attrs.text("format") == "e4m3" &&
        g.value(n.inputs[0]).kind == graph::ValueKind::Result)
      ++again;
  EXPECT_EQ(again, 2);
}

TEST(QuantizePass, WideTypesKeepTheirStorage) {
  const Graph g = quantised({}, DType::F64);
  for (const Node& n : g.nodes())
    if (n.op == &graph::kQuantize)
      for (const ValueId v : n.outputs) EXPECT_EQ(g.type(v).dtype, DType::F64);
  const Graph narrow = quantised();
  for (const Node& n : narrow.nodes())
    if (n.op == &graph::kScaledLinear) EXPECT_EQ(narrow.type(n.inputs[0]).dtype, DType::E4M3);
}

TEST(QuantizePass, HeadQuantisesItsWeightOnce) {
  const Graph g = quantised({.head = true});
  EXPECT_EQ(count(g, graph::kLinear), 0);
  for (const Node& n : g.nodes()) {
    if (n.op != &graph::kQuantize || n.block != g.num_blocks - 1) continue;
    const bool weight = g.value(n.inputs[0]).kind == graph::ValueKind::Param;
    EXPECT_EQ(n.row_group, weight ? -1 : 0);
    if (weight) EXPECT_TRUE(n.attrs.integer("plain") && n.attrs.integer("transposed"));
  }
}

TEST(QuantizePass, PatternsChooseWeights) {
  const Graph g = quantised({.match = {"blocks.1.ffn.*", "*.attn.wo.weight"}});
  EXPECT_EQ(count(g, graph::kScaledLinear), 3 + 2);
  try {
    quantised({.match = {"blocks.*.router"}});
    FAIL();
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("blocks.0.attn.wq.weight"), std::string::npos) << e.what();
  }
  config::Model odd = model();
  odd.embed = 24;
  EXPECT_THROW(quantize(build(odd), {.match = {"*.attn.wq.*"}}), base::UserError);
}

TEST(QuantizePass, SizesThatDoNotFitStay) {
  config::Model m = model();
  m.ffn = 40;
  const Graph g = quantize(build(m), {});
  EXPECT_EQ(count(g, graph::kScaledLinear), 8);
  EXPECT_EQ(count(g, graph::kLinear), 6 + 1);
}

TEST(QuantizePass, TextRoundTrip) {
  const Graph g = quantised({.head = true});
  EXPECT_EQ(graph::to_text(graph::parse_text(graph::to_text(g))), graph::to_text(g));
}

layout::LocalGraph local_of(config::RecomputeKind recompute_kind, int64_t tp = 1) {
  const config::Model m = model();
  Graph g = quantised();
  config::Memory memory;
  memory.recompute = recompute_kind;
  if (recompute_kind == config::RecomputeKind::Selective) memory.recompute_ops = {"norm", "activation"};
  g = recompute(g, chosen(g, memory));
  drop_unused_codes(g);
  graph::verify(g, "recompute");
  config::Parallel parallel;
  parallel.tp = tp;
  return layout::partition(g, layout::make_layout(parallel, m));
}

// What is recomputed makes only the codes that the backward pass reads, and measures nothing.
TEST(QuantizePass, RecomputedCodesHaveNoOtherResults) {
  for (const config::RecomputeKind kind : {config::RecomputeKind::Selective, config::RecomputeKind::Full}) {
    const Graph g = local_of(kind).graph;
    int again = 0;
    for (const Node& n : g.nodes()) {
      if (n.op != &graph::kQuantize || n.phase == Phase::F) continue;
      const bool gradient = n.attrs.text("format") == "e5m2";
      EXPECT_EQ(n.attrs.integer("measures"), gradient);
      if (!gradient && n.attrs.integer("transposed")) ++again;
    }
    EXPECT_GT(again, 0);
  }
}

// One GEMM for q, k and v, and one quantize node for each of their operands; likewise gate and up.
TEST(QuantizePass, SetsArePackedIntoOneGemm) {
  const Graph g = pack(fold(local_of(config::RecomputeKind::Selective), {})).graph;
  graph::verify(g, "pack", /*local=*/true);
  EXPECT_EQ(count(g, graph::kScaledLinear), 2 * 4);
  EXPECT_EQ(count(g, graph::kScaledLinearDx), 2 * 4);
  EXPECT_EQ(count(g, graph::kScaledLinearDw), 2 * 4);
  for (const Node& n : g.nodes())
    if (n.op == &graph::kScaledLinearDw && n.outputs.size() > 1) EXPECT_NE(n.attrs.find("parts"), nullptr);
}

TEST(QuantizePass, ProducersMakeCodes) {
  const Graph g = fold_codes(pack(fold(local_of(config::RecomputeKind::Selective), {}))).graph;
  graph::verify(g, "fold codes", /*local=*/true);
  EXPECT_EQ(count(g, graph::kRmsNormQuantize) + count(g, graph::kAddRmsNormQuantize), 4);
  EXPECT_EQ(count(g, graph::kSwiGluQuantize), 2);
  EXPECT_EQ(count(g, graph::kSwiGluBackwardQuantize), 2);
  EXPECT_EQ(count(g, graph::kRmsNormAgainQuantize), 4);
  EXPECT_EQ(count(g, graph::kSwiGlu), 0);
  for (const Node& n : g.nodes())
    if (n.op == &graph::kRmsNormBackward) EXPECT_EQ(n.attrs.integer("again"), 0);
}

// ---- Scales of blocks

const QuantizeOptions kSquares = {.blocks = BlockScales{.size = 16, .square_weights = true}};

TEST(QuantizePass, BlocksHaveFactorsAndNoState) {
  const Graph g = quantised(kSquares);
  EXPECT_EQ(count(g, graph::kBlockLinear), 14);
  EXPECT_EQ(count(g, graph::kBlockLinearDx), 14);
  EXPECT_EQ(count(g, graph::kBlockLinearDw), 14);
  EXPECT_EQ(count(g, graph::kQuantize), 0);
  EXPECT_FALSE(g.find(graph::kScaleState).valid());
  EXPECT_EQ(graph::to_text(graph::parse_text(graph::to_text(g))), graph::to_text(g));
  // Every operand of every GEMM is counted once; nothing is measured for later steps.
  std::vector<int> rounded(g.scales.size(), 0);
  for (const graph::StepSum& s : g.step_sums) {
    EXPECT_NE(s.kind, graph::SumKind::Amax);
    if (s.kind == graph::SumKind::Rounded) ++rounded[static_cast<size_t>(s.scale)];
  }
  EXPECT_EQ(rounded,
            (std::vector<int>{1, 3, 3, 1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 3, 3, 1, 1, 1, 1, 2, 2, 1, 1, 1}));
  for (const Node& n : g.nodes()) {
    if (n.op != &graph::kQuantizeBlocks) continue;
    EXPECT_EQ(n.attrs.text("format"), "e4m3");
    EXPECT_EQ(n.attrs.integer("square"), g.value(n.inputs[0]).kind == graph::ValueKind::Param);
  }
}

TEST(QuantizePass, SizesThatBlocksDoNotDivideStay) {
  config::Model m = model();
  m.ffn = 80;
  const Graph g = quantize(build(m), {.blocks = BlockScales{.size = 32, .square_weights = true}});
  EXPECT_EQ(count(g, graph::kBlockLinear), 8);  // of attention
  EXPECT_EQ(count(g, graph::kLinear), 6 + 1);
  EXPECT_THROW(quantize(build(m), {.match = {"*.ffn.*"}, .blocks = BlockScales{.size = 32}}),
               base::UserError);
}

layout::LocalGraph local_blocks(int64_t tp) {
  const config::Model m = model();
  Graph g = quantize(build(m), kSquares);
  drop_unused_codes(g);
  config::Parallel parallel;
  parallel.tp = tp;
  return layout::partition(g, layout::make_layout(parallel, m));
}

// As for one scale per tensor; factors come with their codes.
TEST(QuantizePass, BlocksArePackedIntoOneGemm) {
  const Graph g = pack(fold(local_blocks(1), {})).graph;
  graph::verify(g, "pack", /*local=*/true);
  EXPECT_EQ(count(g, graph::kBlockLinear), 2 * 4);
  EXPECT_EQ(count(g, graph::kBlockLinearDx), 2 * 4);
  EXPECT_EQ(count(g, graph::kBlockLinearDw), 2 * 4);
  for (const Node& n : g.nodes())
    if (n.op == &graph::kBlockLinearDw && n.outputs.size() > 1) EXPECT_NE(n.attrs.find("parts"), nullptr);
}

TEST(QuantizePass, ShardsHoldWholeBlocks) {
  try {
    local_blocks(2);
    FAIL() << "24 of the 48 ffn features are one and a half blocks";
  } catch (const base::UserError& e) {
    const std::string text = e.what();
    for (const char* part : {"48 values along ffn", "24 per rank", "whole blocks of 16", "fp8_match"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

// A shard's maximum is a part of the whole one.
TEST(QuantizePass, MagnitudesArePartialMaxima) {
  const layout::LocalGraph local = local_of(config::RecomputeKind::None, 2);
  int partial = 0;
  for (const graph::StepSum& s : local.graph.step_sums) {
    const layout::Placement& p = local.placements[s.value.index()];
    if (p.partial.empty()) continue;
    ++partial;
    EXPECT_EQ(p.reduction, s.kind == graph::SumKind::Amax ? graph::Reduction::Max : graph::Reduction::Sum);
  }
  EXPECT_GT(partial, 0);
}

}  // namespace
}  // namespace quintet::passes::quantize_test
