#include "graph/autodiff.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "graph/support.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "support/folders.h"

namespace quintet::graph {
namespace {

using testing::param;
using testing::tiny_llama;

int count(const Graph& g, const OpDef& op, Phase phase) {
  return static_cast<int>(std::count_if(g.nodes().begin(), g.nodes().end(),
                                        [&](const Node& n) { return n.op == &op && n.phase == phase; }));
}

const Node& producer(const Graph& g, ValueId id) { return g.nodes()[g.value(id).producer.index()]; }

// Results of the backward pass that nothing uses and that are not a parameter's gradient. An op with several
// results may compute an unused one (dV where V's weight is frozen), but never only unused ones.
std::vector<std::string> wasted_nodes(const Graph& g) {
  std::set<ValueId> used;
  for (const Node& n : g.nodes()) used.insert(n.inputs.begin(), n.inputs.end());
  for (const Param& p : g.params()) used.insert(p.grads.begin(), p.grads.end());
  std::vector<std::string> wasted;
  for (const Node& n : g.nodes())
    if (n.phase != Phase::F &&
        std::none_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return used.contains(v); }))
      wasted.push_back(to_text(g, n));
  return wasted;
}

// The whole graph of a tied one-block Llama with V's weight frozen, reviewed by hand.
TEST(Autodiff, OneBlockLlama) {
  const std::string want = base::read_file(test::source_dir() + "/tests/graph/one_block_llama.graph");
  const std::string got = to_text(tiny_llama({.tied = true, .freeze = {"wv.weight"}}));
  std::istringstream want_lines(want), got_lines(got);
  std::string a, b;
  for (int line = 1; std::getline(want_lines, a); ++line) {
    ASSERT_TRUE(std::getline(got_lines, b)) << "ends before line " << line << ": " << a;
    ASSERT_EQ(b, a) << "line " << line;
  }
  EXPECT_EQ(got, want);
}

TEST(Autodiff, FrozenParametersHaveNoWeightGradients) {
  const Graph all = tiny_llama(), some = tiny_llama({.freeze = {"w?.weight"}});
  EXPECT_EQ(count(all, kLinearDw, Phase::W), 7);
  EXPECT_EQ(count(some, kLinearDw, Phase::W), 3);
  for (const char* name : {"wq.weight", "wk.weight", "wv.weight", "wo.weight"}) {
    EXPECT_FALSE(param(some, name).trainable);
    EXPECT_TRUE(param(some, name).grads.empty());
  }
  // Gradients still pass through to the embedding.
  EXPECT_EQ(count(some, kLinearDx, Phase::B), count(all, kLinearDx, Phase::B));
  EXPECT_EQ(param(some, "embed.weight").grads.size(), 1u);
}

TEST(Autodiff, NoGradientsPastTheLastTrainableParameter) {
  const Graph g = tiny_llama({.freeze = {"embed.*", "attn_norm.*", "w*", "ffn_norm.*", "gate.*", "up.*"}});
  EXPECT_EQ(count(g, kAttentionDx, Phase::B), 0);
  EXPECT_EQ(count(g, kSwiGluDx, Phase::B), 0);
  EXPECT_EQ(count(g, kLinearDx, Phase::B), 0);
  EXPECT_EQ(count(g, kRmsNormDx, Phase::B), 1);  // to reach down.weight
  EXPECT_EQ(count(g, kLinearDw, Phase::W), 1);
  EXPECT_TRUE(wasted_nodes(g).empty());
}

TEST(Autodiff, HeadAloneNeedsNoBackwardPass) {
  const Graph g = tiny_llama({.freeze = {"embed.*", "*norm.weight", "w*", "gate.*", "up.*", "down.*"}});
  for (const Node& n : g.nodes()) EXPECT_EQ(n.phase, Phase::F) << n.op->name;
  EXPECT_EQ(count(g, kLinearDx, Phase::F), 0);
  EXPECT_EQ(param(g, "head.weight").grads.size(), 1u);
}

TEST(Autodiff, FrozenHeadGivesNoWeightGradient) {
  const Graph g = tiny_llama({.freeze = {"head.weight"}});
  EXPECT_EQ(count(g, kLinearDw, Phase::F), 0);
  EXPECT_EQ(count(g, kLinearDx, Phase::F), 1);
}

TEST(Autodiff, TiedTableGetsTwoContributions) {
  const Graph g = tiny_llama({.tied = true});
  const std::vector<ValueId>& grads = param(g, "embed.weight").grads;
  ASSERT_EQ(grads.size(), 2u);
  EXPECT_EQ(producer(g, grads[0]).op, &kLinearDw);
  EXPECT_EQ(producer(g, grads[0]).phase, Phase::F);  // the head's, computed with the loss
  EXPECT_EQ(producer(g, grads[1]).op, &kEmbeddingDw);
  EXPECT_EQ(producer(g, grads[1]).phase, Phase::W);
}

// Tied, and the only trainable parameter: the gradient through the embedding must be included.
TEST(Autodiff, TiedTableAloneGetsBothContributions) {
  const Graph g = tiny_llama({.tied = true, .freeze = {"*norm.weight", "w*", "gate.*", "up.*", "down.*"}});
  EXPECT_EQ(param(g, "embed.weight").grads.size(), 2u);
  EXPECT_EQ(count(g, kLinearDw, Phase::W), 0);
}

TEST(Autodiff, GradientsHaveTheirOwnDtype) {
  BuildOptions options = testing::train_options();
  options.compute = DType::BF16;
  options.param_grad = DType::F32;
  Builder b(options);
  const ValueId table = b.weight("table", {{Dim::Vocab, 37}, {Dim::Embed, 16}}, 0.02);
  const ValueId x = b.rms_norm(b.embedding(table, b.ids()), b.norm_weight("norm", {Dim::Embed, 16}), 1e-5);
  b.head(x, table);
  const Graph g = b.finish();
  for (const Param& p : g.params())
    for (const ValueId id : p.grads) {
      EXPECT_EQ(g.type(id).dtype, DType::F32);
      EXPECT_EQ(g.type(id).dims, g.type(p.value).dims);
    }
  for (const Node& n : g.nodes())
    if (n.phase == Phase::B) {
      EXPECT_EQ(g.type(n.outputs[0]).dtype, DType::BF16) << n.op->name;
    }
}

TEST(Autodiff, ParameterWithoutGradientIsRefused) {
  Builder b(testing::train_options());
  const ValueId table = b.weight("table", {{Dim::Vocab, 37}, {Dim::Embed, 16}}, 0.02);
  b.weight("lonely", {{Dim::Ffn, 24}, {Dim::Embed, 16}}, 0.02);
  b.head(b.embedding(table, b.ids()), table);
  try {
    b.finish();
    ADD_FAILURE() << "was accepted";
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("lonely"), std::string::npos) << e.what();
  }
}

TEST(Autodiff, ParameterWithoutGradientMayBeFrozen) {
  Builder b(testing::train_options());
  const ValueId table = b.weight("table", {{Dim::Vocab, 37}, {Dim::Embed, 16}}, 0.02);
  b.weight("lonely", {{Dim::Ffn, 24}, {Dim::Embed, 16}}, 0.02);
  b.head(b.embedding(table, b.ids()), table);
  b.freeze({"lonely"});
  EXPECT_NO_THROW(b.finish());
}

TEST(Autodiff, AllFrozenIsRefused) { EXPECT_THROW(tiny_llama({.freeze = {"*"}}), base::UserError); }

// x + x: the first thing that the backward pass computes is a sum of gradients.
TEST(Autodiff, ValueUsedTwiceByOneNode) {
  Builder b(testing::train_options());
  const ValueId table = b.weight("table", {{Dim::Vocab, 37}, {Dim::Embed, 16}}, 0.02);
  const ValueId x = b.embedding(table, b.ids());
  b.head(b.add(x, x), b.weight("head", {{Dim::Vocab, 37}, {Dim::Embed, 16}}, 0.02));
  const Graph g = b.finish();
  EXPECT_EQ(wasted_nodes(g), std::vector<std::string>{});
  const Node& dw = producer(g, param(g, "table").grads.at(0));
  EXPECT_EQ(producer(g, dw.inputs[1]).op, &kAdd);
}

TEST(Autodiff, NothingUnusedIsComputed) {
  EXPECT_TRUE(wasted_nodes(tiny_llama()).empty());
  for (int depth = 1; depth <= 80; ++depth) {
    Builder b(testing::train_options());
    const ValueId table = b.weight("table", {{Dim::Vocab, 37}, {Dim::Embed, 16}}, 0.02);
    ValueId x = b.embedding(table, b.ids());
    for (int i = 0; i < depth; ++i)
      x = b.add(x, b.rms_norm(x, b.norm_weight("norm" + std::to_string(i), {Dim::Embed, 16}), 1e-5));
    b.head(x, table);
    const Graph g = b.finish();
    EXPECT_EQ(wasted_nodes(g), std::vector<std::string>{}) << "depth " << depth;
    EXPECT_EQ(count(g, kAdd, Phase::B), depth);
    EXPECT_NO_THROW(verify(g, "autodiff"));
  }
}

}  // namespace
}  // namespace quintet::graph
