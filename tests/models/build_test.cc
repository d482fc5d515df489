#include "models/build.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "config/presets.h"
#include "graph/text.h"
#include "graph/verify.h"

namespace quintet::models {
namespace {

using config::Family;
using config::Model;
using graph::BuildOptions;
using graph::Graph;
using graph::Mode;

// All sizes differ, so that swapped dims are detected.
Model small_llama() {
  return {.family = Family::Llama,
          .layers = 2,
          .embed = 16,
          .ffn = 24,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 6,
          .vocab = 37,
          .rope_theta = 1e4};
}

Model small_gpt2() {
  return {.family = Family::Gpt2,
          .layers = 1,
          .embed = 16,
          .ffn = 24,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 6,
          .vocab = 37,
          .tied = true,
          .max_positions = 10};
}

BuildOptions options(Mode mode = Mode::Train) { return {.mode = mode, .tokens = 16, .seq_len = 8}; }

// name -> "f32[...] block"
std::map<std::string, std::string> parameters(const Graph& g) {
  std::map<std::string, std::string> found;
  for (const graph::Param& p : g.params())
    found[g.value(p.value).name] = to_string(g.type(p.value)) + " " + std::to_string(p.block);
  return found;
}

int count_nodes(const Graph& g, std::string_view op, graph::Phase phase = graph::Phase::F) {
  return static_cast<int>(std::count_if(g.nodes().begin(), g.nodes().end(), [&](const graph::Node& n) {
    return n.op->name == op && n.phase == phase;
  }));
}

std::set<std::string> difference(const std::map<std::string, std::string>& a,
                                 const std::map<std::string, std::string>& b) {
  std::set<std::string> only;
  for (const auto& [name, type] : a)
    if (!b.contains(name)) only.insert(name);
  return only;
}

// Multi-token prediction exists in training only. Its label, which has the final norm too, is before the
// head's in every mode.
TEST(Build, PredictionOfFurtherTokens) {
  Model model = small_llama();
  const auto plain = parameters(build(model, options()));
  model.mtp = {.layers = 1, .loss = 0.3};
  const Graph g = build(model, options());
  graph::verify(g, "test");
  EXPECT_EQ(difference(parameters(g), plain),
            (std::set<std::string>{
                "blocks.2.attn.wk.weight", "blocks.2.attn.wo.weight", "blocks.2.attn.wq.weight",
                "blocks.2.attn.wv.weight", "blocks.2.attn_norm.weight", "blocks.2.embed_norm.weight",
                "blocks.2.ffn.down.weight", "blocks.2.ffn.gate.weight", "blocks.2.ffn.up.weight",
                "blocks.2.ffn_norm.weight", "blocks.2.final_norm.weight", "blocks.2.hidden_norm.weight",
                "blocks.2.join_embed.weight", "blocks.2.join_hidden.weight"}));
  EXPECT_EQ(parameters(g).at("blocks.2.join_embed.weight"), "f32[embed=16, embed=16] 3");
  EXPECT_EQ(g.num_blocks, 5);
  EXPECT_EQ(count_nodes(g, "loss_grad"), 2);
  ASSERT_EQ(g.step_sums.size(), 1u);
  EXPECT_EQ(g.step_sums[0].kind, graph::SumKind::NextTokenLoss);
  EXPECT_TRUE(g.find(graph::InputSpec{.kind = graph::InputKind::NextLabels}).valid());
  auto head_behind = plain;
  ASSERT_TRUE(head_behind.at("head.weight").ends_with(" 3"));
  head_behind["head.weight"].back() = '4';
  for (const Mode mode : {Mode::Evaluate, Mode::Infer, Mode::Score})
    EXPECT_EQ(parameters(build(model, options(mode))), head_behind);
  // A pattern that matches only these parameters is no error where they do not exist.
  BuildOptions frozen = options();
  frozen.groups = {{.match = "blocks.2.*", .update = false}};
  build(model, frozen);
  frozen.mode = Mode::Evaluate;
  build(model, frozen);
  // Only what the second head needs is differentiated when the rest is frozen.
  BuildOptions alone = options();
  alone.groups = {{.match = "blocks.2.*", .update = true}, {.match = "*", .update = false}};
  const Graph last = build(model, alone);
  EXPECT_EQ(count_nodes(last, "linear_dw"), 0);
  EXPECT_EQ(count_nodes(last, "linear_dx"), 1);
}

TEST(Build, LlamaParameters) {
  Model model = small_llama();
  model.layers = 1;
  const std::map<std::string, std::string> want = {
      {"embed.weight", "f32[vocab=37, embed=16] 0"},
      {"blocks.0.attn_norm.weight", "f32[embed=16] 1"},
      {"blocks.0.attn.wq.weight", "f32[heads=4, head_dim=6, embed=16] 1"},
      {"blocks.0.attn.wk.weight", "f32[kv_heads=2, head_dim=6, embed=16] 1"},
      {"blocks.0.attn.wv.weight", "f32[kv_heads=2, head_dim=6, embed=16] 1"},
      {"blocks.0.attn.wo.weight", "f32[embed=16, heads=4, head_dim=6] 1"},
      {"blocks.0.ffn_norm.weight", "f32[embed=16] 1"},
      {"blocks.0.ffn.gate.weight", "f32[ffn=24, embed=16] 1"},
      {"blocks.0.ffn.up.weight", "f32[ffn=24, embed=16] 1"},
      {"blocks.0.ffn.down.weight", "f32[embed=16, ffn=24] 1"},
      {"final_norm.weight", "f32[embed=16] 2"},
      {"head.weight", "f32[vocab=37, embed=16] 2"},
  };
  EXPECT_EQ(parameters(build(model, options())), want);
}

TEST(Build, LlamaRelativesDifferByTheseParameters) {
  const auto plain = parameters(build(small_llama(), options()));
  Model tied = small_llama();
  tied.tied = true;
  const auto without = parameters(build(tied, options()));
  EXPECT_EQ(difference(plain, without), (std::set<std::string>{"head.weight"}));
  EXPECT_EQ(difference(without, plain), std::set<std::string>{});

  Model qwen2 = small_llama();
  qwen2.qkv_bias = true;
  const auto biased = parameters(build(qwen2, options()));
  EXPECT_EQ(
      difference(biased, plain),
      (std::set<std::string>{"blocks.0.attn.wq.bias", "blocks.0.attn.wk.bias", "blocks.0.attn.wv.bias",
                             "blocks.1.attn.wq.bias", "blocks.1.attn.wk.bias", "blocks.1.attn.wv.bias"}));
  EXPECT_EQ(biased.at("blocks.1.attn.wq.bias"), "f32[heads=4, head_dim=6] 2");
  EXPECT_EQ(biased.at("blocks.1.attn.wk.bias"), "f32[kv_heads=2, head_dim=6] 2");

  Model qwen3 = small_llama();
  qwen3.qk_norm = true;
  const auto normed = parameters(build(qwen3, options()));
  EXPECT_EQ(difference(normed, plain),
            (std::set<std::string>{"blocks.0.attn.q_norm.weight", "blocks.0.attn.k_norm.weight",
                                   "blocks.1.attn.q_norm.weight", "blocks.1.attn.k_norm.weight"}));
  EXPECT_EQ(normed.at("blocks.0.attn.k_norm.weight"), "f32[head_dim=6] 1");
}

TEST(Build, Gpt2Parameters) {
  const std::map<std::string, std::string> want = {
      {"embed.weight", "f32[vocab=37, embed=16] 0"},
      {"positions.weight", "f32[positions=10, embed=16] 0"},
      {"blocks.0.attn_norm.weight", "f32[embed=16] 1"},
      {"blocks.0.attn_norm.bias", "f32[embed=16] 1"},
      {"blocks.0.attn.wq.weight", "f32[heads=4, head_dim=6, embed=16] 1"},
      {"blocks.0.attn.wk.weight", "f32[kv_heads=4, head_dim=6, embed=16] 1"},
      {"blocks.0.attn.wv.weight", "f32[kv_heads=4, head_dim=6, embed=16] 1"},
      {"blocks.0.attn.wq.bias", "f32[heads=4, head_dim=6] 1"},
      {"blocks.0.attn.wk.bias", "f32[kv_heads=4, head_dim=6] 1"},
      {"blocks.0.attn.wv.bias", "f32[kv_heads=4, head_dim=6] 1"},
      {"blocks.0.attn.wo.weight", "f32[embed=16, heads=4, head_dim=6] 1"},
      {"blocks.0.attn.wo.bias", "f32[embed=16] 1"},
      {"blocks.0.ffn_norm.weight", "f32[embed=16] 1"},
      {"blocks.0.ffn_norm.bias", "f32[embed=16] 1"},
      {"blocks.0.ffn.up.weight", "f32[ffn=24, embed=16] 1"},
      {"blocks.0.ffn.up.bias", "f32[ffn=24] 1"},
      {"blocks.0.ffn.down.weight", "f32[embed=16, ffn=24] 1"},
      {"blocks.0.ffn.down.bias", "f32[embed=16] 1"},
      {"final_norm.weight", "f32[embed=16] 2"},
      {"final_norm.bias", "f32[embed=16] 2"},
  };
  EXPECT_EQ(parameters(build(small_gpt2(), options())), want);
}

TEST(Build, InitialisationAndDecay) {
  for (Model model : {small_llama(), small_gpt2()}) {
    model.qkv_bias = true;
    const Graph g = build(model, options());
    for (const graph::Param& p : g.params()) {
      const std::string& name = g.value(p.value).name;
      SCOPED_TRACE(name);
      const bool norm = name.ends_with("norm.weight"), bias = name.ends_with(".bias");
      EXPECT_EQ(p.init, norm ? graph::Init::Ones : bias ? graph::Init::Zeros : graph::Init::Normal);
      EXPECT_EQ(p.decay, !norm && !bias);
      if (norm || bias) continue;
      const bool residual = name.ends_with("wo.weight") || name.ends_with("down.weight");
      EXPECT_DOUBLE_EQ(p.stddev, residual ? 0.02 / std::sqrt(2.0 * static_cast<double>(model.layers)) : 0.02);
    }
  }
}

TEST(Build, WeightsOfOneMatmulAreNeighbours) {
  Model model = small_llama();
  model.qkv_bias = true;
  const Graph g = build(model, options());
  std::vector<std::string> names;
  for (const graph::Param& p : g.params()) names.push_back(g.value(p.value).name);
  const auto at = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  EXPECT_EQ(at("blocks.0.attn.wk.weight"), at("blocks.0.attn.wq.weight") + 1);
  EXPECT_EQ(at("blocks.0.attn.wv.weight"), at("blocks.0.attn.wq.weight") + 2);
  EXPECT_EQ(at("blocks.0.ffn.up.weight"), at("blocks.0.ffn.gate.weight") + 1);
}

TEST(Build, WindowScaleAndRopeReachTheOps) {
  Model model = small_llama();
  model.sliding_window = 5;
  model.rope_scaling = {.kind = config::RopeScalingKind::Yarn, .factor = 4, .original_positions = 32};
  model.norm_eps = 1e-6;
  const Graph g = build(model, options());
  int seen = 0;
  for (const graph::Node& n : g.nodes()) {
    if (n.phase != graph::Phase::F) continue;
    if (n.op == &graph::kAttention) {
      EXPECT_EQ(n.attrs.integer("window"), 5);
      EXPECT_EQ(n.attrs.integer("seq_len"), 8);
      EXPECT_DOUBLE_EQ(n.attrs.real("scale"), 1 / std::sqrt(6.0));
      EXPECT_EQ(n.attrs.real("dropout"), 0.0);
      ++seen;
    } else if (n.op == &graph::kRope) {
      EXPECT_EQ(n.attrs.reals("inv_freq").size(), 3u);
      EXPECT_DOUBLE_EQ(n.attrs.real("scale"), 0.1 * std::log(4.0) + 1);
      ++seen;
    } else if (n.op == &graph::kRmsNorm) {
      EXPECT_EQ(n.attrs.real("eps"), 1e-6);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 2 * 1 + 2 * 2 + 5);
}

TEST(Build, Gpt2DropoutInTrainingOnly) {
  Model model = small_gpt2();
  model.dropout = 0.1;
  const Graph train = build(model, options());
  EXPECT_EQ(count_nodes(train, "dropout"), 3);  // embeddings, attention branch, feed-forward branch
  EXPECT_EQ(count_nodes(train, "dropout", graph::Phase::B), 3);
  std::set<int64_t> salts;  // all masks differ
  for (const graph::Node& n : train.nodes()) {
    if (n.phase != graph::Phase::F) continue;
    if (n.op == &graph::kDropout) {
      EXPECT_EQ(n.attrs.real("p"), 0.1);
    }
    if (n.op == &graph::kAttention) {
      EXPECT_EQ(n.attrs.real("dropout"), 0.1);
    }
    if (n.op == &graph::kDropout || n.op == &graph::kAttention) {
      EXPECT_TRUE(salts.insert(n.attrs.integer("salt")).second);
    }
  }
  EXPECT_EQ(salts.size(), 4u);
  for (const Mode mode : {Mode::Evaluate, Mode::Infer}) {
    const Graph g = build(model, options(mode));
    EXPECT_EQ(count_nodes(g, "dropout"), 0);
    for (const graph::Node& n : g.nodes())
      if (n.op == &graph::kAttention) {
        EXPECT_EQ(n.attrs.real("dropout"), 0.0);
      }
  }
}

TEST(Build, BlocksOfNodes) {
  const Graph g = build(small_llama(), options());
  EXPECT_EQ(g.num_blocks, 4);
  for (const graph::Node& n : g.nodes()) {
    if (n.op == &graph::kEmbedding || n.op == &graph::kEmbeddingDw) {
      EXPECT_EQ(n.block, 0);
    }
    if (n.op == &graph::kAttention || n.op == &graph::kSwiGluDx) {
      EXPECT_TRUE(n.block == 1 || n.block == 2);
    }
    if (n.op == &graph::kRowMax || n.op == &graph::kLossGrad) {
      EXPECT_EQ(n.block, 3);
    }
  }
  EXPECT_EQ(count_nodes(g, "attention"), 2);
}

TEST(Build, Modes) {
  const Graph train = build(small_llama(), options()),
              evaluate = build(small_llama(), options(Mode::Evaluate)),
              infer = build(small_llama(), options(Mode::Infer));
  EXPECT_TRUE(train.loss.valid() && evaluate.loss.valid() && infer.logits.valid());
  EXPECT_FALSE(infer.loss.valid() || train.logits.valid());
  EXPECT_EQ(to_string(infer.type(infer.logits)), "f32[tokens=16, vocab=37]");
  for (const graph::Param& p : train.params()) EXPECT_EQ(p.grads.size(), 1u) << train.value(p.value).name;
  for (const graph::Param& p : evaluate.params()) EXPECT_TRUE(p.grads.empty());
  for (const graph::Node& n : evaluate.nodes()) EXPECT_EQ(n.phase, graph::Phase::F);
}

TEST(Build, FrozenParameters) {
  graph::BuildOptions o = options();
  o.groups = {{"embed.*", false}, {"blocks.0.*", false}};
  const Graph g = build(small_llama(), o);
  EXPECT_LT(trainable_parameter_count(g), parameter_count(g));
  int64_t frozen = 0;
  for (const graph::Param& p : g.params()) {
    const std::string& name = g.value(p.value).name;
    EXPECT_EQ(p.trainable, !name.starts_with("embed.") && !name.starts_with("blocks.0.")) << name;
    EXPECT_EQ(p.grads.empty(), !p.trainable) << name;
    if (!p.trainable) frozen += g.type(p.value).count();
  }
  EXPECT_EQ(trainable_parameter_count(g) + frozen, parameter_count(g));
  for (const graph::Node& n : g.nodes())
    if (n.phase != graph::Phase::F) {
      EXPECT_GE(n.block, 2) << "no gradients flow into frozen blocks";
    }
}

TEST(Build, Refusals) {
  Model model = small_gpt2();
  EXPECT_THROW(build(model, {.tokens = 32, .seq_len = 16}), base::UserError);  // 10 positions
  model.kv_heads = 2;
  EXPECT_THROW(build(model, options()), base::UserError);
  model = small_llama();
  model.layers = 0;
  EXPECT_THROW(build(model, options()), base::UserError);
  model = small_llama();
  model.kv_heads = 3;  // not a divisor of 4 heads
  EXPECT_THROW(build(model, options()), base::UserError);
  const auto with_groups = [](std::vector<graph::ParamGroup> groups) {
    graph::BuildOptions o = options();
    o.groups = std::move(groups);
    return build(small_llama(), o);
  };
  EXPECT_THROW(with_groups({{"no.such.*"}}), base::UserError);
  EXPECT_THROW(with_groups({{"*norm*"}, {"final_norm.*"}}), base::UserError);  // has no effect
  EXPECT_NO_THROW(with_groups({{"final_norm.*"}, {"*norm*"}}));
  EXPECT_THROW(with_groups({{"*", false}}), base::UserError);
}

// Every preset with its depth reduced to 2: wide and tied ones, biases, norms, windows, dropout.
TEST(Build, EveryPresetVerifiesAndReadsBackFromText) {
  for (Model model : config::presets()) {
    SCOPED_TRACE(model.preset);
    model.layers = model.moe.first_dense + 2;
    for (const Mode mode : {Mode::Train, Mode::Evaluate, Mode::Infer}) {
      const Graph g = build(model, {.mode = mode, .compute = graph::DType::BF16, .tokens = 16, .seq_len = 8});
      EXPECT_NO_THROW(graph::verify(g, "build"));
      const std::string text = graph::to_text(g);
      const Graph again = graph::parse_text(text);
      EXPECT_NO_THROW(graph::verify(again, "parse"));
      EXPECT_EQ(graph::to_text(again), text);
    }
  }
}

}  // namespace
}  // namespace quintet::models
