// Blocks with experts and latent attention: parameters, ops and their attributes, and differences by mode.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/fuse_adds.h"
#include "graph/verify.h"
#include "models/build.h"

namespace quintet::models {
namespace {

using config::Model;
using graph::Graph;
using graph::Mode;
using graph::Node;

// All sizes differ, so that swapped dims are detected.
Model mixture() {
  return {.layers = 1,
          .embed = 16,
          .ffn = 24,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 6,
          .vocab = 37,
          .rope_theta = 1e4,
          .moe = {.experts = 5, .top_k = 3, .ffn = 24}};
}

Model latent() {
  Model m = mixture();
  m.kv_heads = 4;
  m.head_dim = 14;
  m.moe = {};
  m.mla = {.kv_rank = 10, .q_rank = 12, .nope_dim = 8, .rope_dim = 6, .v_dim = 7};
  return m;
}

graph::BuildOptions options(Mode mode = Mode::Train) { return {.mode = mode, .tokens = 32, .seq_len = 8}; }

std::map<std::string, std::string> parameters(const Graph& g) {
  std::map<std::string, std::string> found;
  for (const graph::Param& p : g.params()) {
    const std::string& name = g.value(p.value).name;
    if (name.find(".attn.") != std::string::npos || name.find(".ffn.") != std::string::npos)
      found[name] = to_string(g.type(p.value));
  }
  return found;
}

std::vector<const Node*> nodes_of(const Graph& g, std::string_view op) {
  std::vector<const Node*> found;
  for (const Node& n : g.nodes())
    if (n.op->name == op) found.push_back(&n);
  return found;
}

const Node& only(const Graph& g, std::string_view op) {
  const auto found = nodes_of(g, op);
  EXPECT_EQ(found.size(), 1u) << op;
  if (found.size() != 1) base::fail_internal("found {} nodes of {}, expected 1", found.size(), op);
  return *found[0];
}

TEST(Experts, Parameters) {
  Model m = mixture();
  m.moe.shared_ffn = 9;
  m.moe.shared_gate = true;
  auto found = parameters(build(m, options()));
  std::erase_if(found, [](const auto& p) { return p.first.find(".attn.") != std::string::npos; });
  const std::map<std::string, std::string> want = {
      {"blocks.0.ffn.router.weight", "f32[routes=5, embed=16]"},
      {"blocks.0.ffn.experts.gate.weight", "f32[experts=5, expert_ffn=24, embed=16]"},
      {"blocks.0.ffn.experts.up.weight", "f32[experts=5, expert_ffn=24, embed=16]"},
      {"blocks.0.ffn.experts.down.weight", "f32[experts=5, embed=16, expert_ffn=24]"},
      {"blocks.0.ffn.shared.gate.weight", "f32[ffn=9, embed=16]"},
      {"blocks.0.ffn.shared.up.weight", "f32[ffn=9, embed=16]"},
      {"blocks.0.ffn.shared.down.weight", "f32[embed=16, ffn=9]"},
      {"blocks.0.ffn.shared_gate.weight", "f32[choices=1, embed=16]"},
  };
  EXPECT_EQ(found, want);
}

// The rows that are sent are narrower; the router and shared experts see the residual stream.
TEST(Experts, LatentOnesHaveTwoProjections) {
  Model m = mixture();
  m.moe.latent = 7;
  m.moe.shared_ffn = 9;
  m.moe.bias = true;
  const Graph g = build(m, options());
  auto found = parameters(g);
  std::erase_if(found, [](const auto& p) { return p.first.find(".attn.") != std::string::npos; });
  const std::map<std::string, std::string> want = {
      {"blocks.0.ffn.router.weight", "f32[routes=5, embed=16]"},
      {"blocks.0.ffn.router.offset", "f32[routes=5]"},
      {"blocks.0.ffn.latent_down.weight", "f32[latent=7, embed=16]"},
      {"blocks.0.ffn.latent_up.weight", "f32[embed=16, latent=7]"},
      {"blocks.0.ffn.experts.gate.weight", "f32[experts=5, expert_ffn=24, latent=7]"},
      {"blocks.0.ffn.experts.up.weight", "f32[experts=5, expert_ffn=24, latent=7]"},
      {"blocks.0.ffn.experts.down.weight", "f32[experts=5, latent=7, expert_ffn=24]"},
      {"blocks.0.ffn.experts.gate.bias", "f32[experts=5, expert_ffn=24]"},
      {"blocks.0.ffn.experts.up.bias", "f32[experts=5, expert_ffn=24]"},
      {"blocks.0.ffn.experts.down.bias", "f32[latent=7, routes=5]"},
      {"blocks.0.ffn.shared.gate.weight", "f32[ffn=9, embed=16]"},
      {"blocks.0.ffn.shared.up.weight", "f32[ffn=9, embed=16]"},
      {"blocks.0.ffn.shared.down.weight", "f32[embed=16, ffn=9]"},
  };
  EXPECT_EQ(found, want);
  int rows = 0;
  for (const Node* n : nodes_of(g, "to_experts"))
    if (g.type(n->outputs[0]).num_dims() == 2 && n->phase == graph::Phase::F) {
      EXPECT_EQ(g.type(n->outputs[0]).size(1), 7);
      ++rows;
    }
  EXPECT_EQ(rows, 1);
}

// Multiplies what the router sees, in training only; the experts see the rows as they are.
TEST(Experts, JitterIsTheRoutersInTraining) {
  Model m = mixture();
  m.layers = 2;
  m.moe.jitter = 0.01;
  const Graph g = build(m, options());
  std::set<int64_t> salts;
  int forward = 0;
  for (const Node* n : nodes_of(g, "jitter")) {
    EXPECT_EQ(n->attrs.real("eps"), 0.01);
    if (n->phase != graph::Phase::F) continue;
    ++forward;
    salts.insert(n->attrs.integer("salt"));
    int uses = 0;
    for (const Node& user : g.nodes())
      if (std::ranges::count(user.inputs, n->outputs[0]) > 0) {
        EXPECT_TRUE(user.op == &graph::kRouter || user.op == &graph::kRouterDw) << user.op->name;
        ++uses;
      }
    EXPECT_EQ(uses, 2);
  }
  EXPECT_EQ(forward, 2);
  EXPECT_EQ(salts.size(), 2u) << "blocks draw different numbers";
  EXPECT_EQ(nodes_of(g, "jitter").size(), 4u) << "each has a gradient";
  for (const Mode mode : {Mode::Evaluate, Mode::Infer})
    EXPECT_TRUE(nodes_of(build(m, options(mode)), "jitter").empty());
}

// What is dropped is decided by random numbers, in evaluation too; the weights stay the router's.
TEST(Experts, RandomDrop) {
  Model m = mixture();
  m.layers = 2;
  m.moe.capacity_factor = 1;
  m.moe.drop = config::DropPolicy::Random;
  for (const Mode mode : {Mode::Train, Mode::Evaluate}) {
    const Graph g = build(m, options(mode));
    const auto draws = nodes_of(g, "random_weights"), limits = nodes_of(g, "limit"),
               selects = nodes_of(g, "select"), packs = nodes_of(g, "pack_weights");
    ASSERT_TRUE(draws.size() == 2 && limits.size() == 2 && packs.size() == 2);
    EXPECT_NE(draws[0]->attrs.integer("salt"), draws[1]->attrs.integer("salt"));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(limits[i]->attrs.text("policy"), "probability");
      EXPECT_EQ(limits[i]->inputs[0], selects[i]->outputs[1]);
      EXPECT_EQ(limits[i]->inputs[1], draws[i]->outputs[0]);
      EXPECT_EQ(packs[i]->inputs[0], selects[i]->outputs[2]);
    }
  }
  EXPECT_TRUE(nodes_of(build(m, options(Mode::Infer)), "random_weights").empty());
}

TEST(Experts, BlocksThatHaveThem) {
  Model m = mixture();
  m.layers = 8;
  const auto blocks = [&] {
    std::string found;
    const Graph g = build(m, options());
    for (const Node* n : nodes_of(g, "router")) found += std::to_string(n->block - 1);
    return found;
  };
  EXPECT_EQ(blocks(), "01234567");
  m.moe.first_dense = 3;
  EXPECT_EQ(blocks(), "34567");
  m.moe.every = 2;
  EXPECT_EQ(blocks(), "46");
  m.moe.first_dense = 0;
  EXPECT_EQ(blocks(), "1357");
}

TEST(Experts, RouterOptionsReachTheOp) {
  Model m = mixture();
  m.moe.experts = 6;
  m.moe.score = config::RouterScore::Sigmoid;
  m.moe.normalise = false;
  m.moe.scale = 2.5;
  m.moe.groups = 3;
  m.moe.groups_kept = 2;
  m.moe.bias_rate = 0.01;
  m.moe.force_balance = true;
  Graph g = build(m, options());
  const Node& s = only(g, "select");
  EXPECT_EQ(s.attrs.integer("k"), 3);
  EXPECT_EQ(s.attrs.text("score"), "sigmoid");
  EXPECT_EQ(s.attrs.text("order"), "score_first");
  EXPECT_EQ(s.attrs.integer("normalise"), 0);
  EXPECT_EQ(s.attrs.real("scale"), 2.5);
  EXPECT_EQ(s.attrs.integer("groups"), 3);
  EXPECT_EQ(s.attrs.integer("groups_kept"), 2);
  ASSERT_EQ(s.inputs.size(), 3u);
  EXPECT_EQ(g.value(s.inputs[1]).name, "blocks.0.ffn.router.bias");
  EXPECT_EQ(g.value(s.inputs[1]).kind, graph::ValueKind::State);
  EXPECT_EQ(g.value(s.inputs[2]).name, "positions");
  ASSERT_EQ(g.bias_updates.size(), 1u);
  EXPECT_EQ(g.bias_updates[0].rate, 0.01);
  EXPECT_EQ(g.bias_updates[0].bias, s.inputs[1]);
  EXPECT_EQ(g.bias_updates[0].load, only(g, "expert_load").outputs[0]);
}

TEST(Experts, Capacity) {
  Model m = mixture();  // 3 of 5 experts, sequences of 8
  EXPECT_TRUE(nodes_of(build(m, options()), "limit").empty());
  m.moe.capacity_factor = 1.25;
  m.moe.capacity_group = 2;
  m.moe.drop = config::DropPolicy::Position;
  const auto capacity = [&] { return only(build(m, options()), "limit").attrs.integer("capacity"); };
  EXPECT_EQ(capacity(), 12);  // 1.25 * 3 * 16 / 5
  const Graph g = build(m, options());
  EXPECT_EQ(only(g, "limit").attrs.integer("group"), 2);
  EXPECT_EQ(only(g, "limit").attrs.text("policy"), "position");
  EXPECT_EQ(only(g, "route").inputs[0], only(g, "limit").outputs[0]);
  EXPECT_EQ(only(g, "route").attrs.integer("pad"), 0);
  EXPECT_EQ(only(g, "expert_load").inputs[0], only(g, "select").outputs[1]) << "load counts before dropping";
  m.moe.capacity_factor = 1;
  EXPECT_EQ(capacity(), 10);  // 9.6
  m.moe.capacity_factor = 1e-6;
  EXPECT_EQ(capacity(), 1);
  m.moe.capacity_factor = 100;
  EXPECT_EQ(capacity(), 16) << "a token selects an expert at most once";
  m.moe.capacity_factor = 1e-6;
  m.moe.min_capacity = 4;
  EXPECT_EQ(capacity(), 4);
  m.moe.capacity_factor = 1;
  EXPECT_EQ(capacity(), 10);
  m.moe.eval_capacity_factor = 1.25;
  EXPECT_EQ(capacity(), 10);
  const auto evaluated = [&] {
    return only(build(m, options(Mode::Evaluate)), "limit").attrs.integer("capacity");
  };
  EXPECT_EQ(evaluated(), 12);
  m.moe.eval_capacity_factor = 0;
  EXPECT_EQ(evaluated(), 10);
  EXPECT_TRUE(nodes_of(build(m, options(Mode::Infer)), "limit").empty());
  EXPECT_EQ(nodes_of(build(m, options(Mode::Evaluate)), "limit").size(), 1u);
  m.moe.capacity_factor = 1;
  m.moe.pad = true;
  EXPECT_EQ(only(build(m, options()), "route").attrs.integer("pad"), 20) << "two groups of 10";
}

// The combined expert output is added to the residual directly, or to the output of shared experts.
TEST(Experts, ReturnedRowsAreAddedToTheResidual) {
  for (const int64_t shared : {0, 20}) {
    Model m = mixture();
    m.moe.shared_ffn = shared;
    const Graph g = build(m, options());
    const graph::FusedAdds fused = graph::fuse_adds(g);
    int forward = 0;
    for (size_t i = 0; i < g.nodes().size(); ++i) {
      const Node& n = g.nodes()[i];
      if (n.op != &graph::kUnpack || n.phase != graph::Phase::F) continue;
      ++forward;
      ASSERT_GE(fused.add_of[i], 0);
      const Node& add = g.nodes()[static_cast<size_t>(fused.add_of[i])];
      EXPECT_TRUE(std::ranges::count(add.inputs, n.outputs[0]) == 1);
    }
    EXPECT_EQ(forward, 1);
  }
}

TEST(Experts, AuxiliaryLosses) {
  Model m = mixture();
  m.layers = 2;
  m.moe.balance_loss = 0.5;
  m.moe.z_loss = 0.25;
  const auto with = [&](config::BalanceScope scope) {
    m.moe.balance_scope = scope;
    graph::BuildOptions o = options();
    o.accumulation = 4;
    return build(m, o);
  };
  const auto names = [](const Graph& g) {
    std::string found;
    for (const graph::StepSum& s : g.step_sums) found += fmt::format("{}{} ", to_string(s.kind), s.block);
    return found;
  };
  Graph g = with(config::BalanceScope::MicroBatch);
  EXPECT_EQ(names(g), "balance_loss1 z_loss1 load1 balance_loss2 z_loss2 load2 ");
  const Node& micro = *nodes_of(g, "balance_loss")[0];
  EXPECT_EQ(micro.attrs.real("coefficient"), 0.125);
  EXPECT_EQ(micro.attrs.integer("tokens"), 32);
  EXPECT_EQ(micro.attrs.integer("groups"), 1);
  EXPECT_EQ(micro.attrs.integer("experts"), 5);
  EXPECT_EQ(micro.attrs.integer("k"), 3);
  EXPECT_EQ(nodes_of(g, "z_loss")[0]->attrs.real("coefficient"), 0.25 / 32 / 4);
  EXPECT_EQ(nodes_of(g, "balance_dx").size(), 2u);
  EXPECT_EQ(nodes_of(g, "z_loss_dx").size(), 2u);
  EXPECT_TRUE(g.find("one").valid());

  g = with(config::BalanceScope::Sequence);
  EXPECT_EQ(nodes_of(g, "balance_loss")[0]->attrs.integer("tokens"), 8);
  EXPECT_EQ(nodes_of(g, "balance_loss")[0]->attrs.integer("groups"), 4);
  g = with(config::BalanceScope::Global);
  EXPECT_EQ(nodes_of(g, "running_sum").size(), 2u);
  EXPECT_EQ(nodes_of(g, "balance_loss")[0]->inputs[1], nodes_of(g, "running_sum")[0]->outputs[0]);
  EXPECT_NO_THROW(graph::verify(g, "build"));
}

// Each scope has its coefficient and its sum; the first keeps the name that it has alone.
TEST(Experts, SeveralBalanceLosses) {
  Model m = mixture();
  m.moe.balance_loss = 0.5;
  m.moe.balance_scope = config::BalanceScope::Sequence;
  m.moe.balance = {.micro_batch = 0.25, .sequence = 0, .global = 0.125};
  const Graph g = build(m, options());
  std::map<std::string, double> coefficients;
  for (const Node* n : nodes_of(g, "balance_loss"))
    coefficients[n->attrs.text("scope")] = n->attrs.real("coefficient");
  EXPECT_EQ(coefficients,
            (std::map<std::string, double>{{"micro", 0.25}, {"sequence", 0.5}, {"global", 0.125}}));
  std::string names;
  for (const graph::StepSum& s : g.step_sums) names += fmt::format("{} ", to_string(s.kind));
  EXPECT_EQ(names, "micro_batch_balance_loss balance_loss running global_balance_loss load ");
  EXPECT_NO_THROW(graph::verify(g, "build"));
}

TEST(Experts, OnlyTrainingReportsAndBalances) {
  Model m = mixture();
  m.moe.balance_loss = 0.5;
  m.moe.z_loss = 0.25;
  m.moe.bias_rate = 0.01;
  for (const Mode mode : {Mode::Evaluate, Mode::Infer}) {
    const Graph g = build(m, options(mode));
    EXPECT_TRUE(g.step_sums.empty() && g.bias_updates.empty());
    for (const char* op : {"expert_load", "balance_loss", "balance_sums", "z_loss"})
      EXPECT_TRUE(nodes_of(g, op).empty()) << op;
    EXPECT_EQ(only(g, "select").inputs.size(), 2u) << "the bias still selects";
    EXPECT_FALSE(g.find("one").valid());
  }
  m.moe.balance_loss = m.moe.z_loss = 0;
  EXPECT_FALSE(build(m, options()).find("one").valid());
}

TEST(LatentAttention, Parameters) {
  auto found = parameters(build(latent(), options()));
  std::erase_if(found, [](const auto& p) { return p.first.find(".ffn.") != std::string::npos; });
  const std::map<std::string, std::string> want = {
      {"blocks.0.attn.wq_down.weight", "f32[latent=12, embed=16]"},
      {"blocks.0.attn.q_norm.weight", "f32[latent=12]"},
      {"blocks.0.attn.wq_nope.weight", "f32[heads=4, head_dim=8, latent=12]"},
      {"blocks.0.attn.wq_rope.weight", "f32[heads=4, head_dim=6, latent=12]"},
      {"blocks.0.attn.wkv_down.weight", "f32[latent=10, embed=16]"},
      {"blocks.0.attn.kv_norm.weight", "f32[latent=10]"},
      {"blocks.0.attn.wk_nope.weight", "f32[kv_heads=4, head_dim=8, latent=10]"},
      {"blocks.0.attn.wk_rope.weight", "f32[choices=1, head_dim=6, embed=16]"},
      {"blocks.0.attn.wv.weight", "f32[kv_heads=4, head_dim=7, latent=10]"},
      {"blocks.0.attn.wo.weight", "f32[embed=16, heads=4, head_dim=7]"},
  };
  EXPECT_EQ(found, want);
  Model direct = latent();
  direct.mla.q_rank = 0;
  found = parameters(build(direct, options()));
  EXPECT_FALSE(found.contains("blocks.0.attn.wq_down.weight"));
  EXPECT_FALSE(found.contains("blocks.0.attn.q_norm.weight"));
  EXPECT_EQ(found.at("blocks.0.attn.wq_rope.weight"), "f32[heads=4, head_dim=6, embed=16]");
}

TEST(LatentAttention, ScaleAndRotation) {
  Model m = latent();
  EXPECT_DOUBLE_EQ(only(build(m, options()), "attention").attrs.real("scale"), 1 / std::sqrt(14.0));
  m.rope_scaling = {.kind = config::RopeScalingKind::Yarn, .factor = 40, .original_positions = 4096};
  const Graph g = build(m, options());
  const double factor = 0.1 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(only(g, "attention").attrs.real("scale"), factor * factor / std::sqrt(14.0));
  int turns = 0;
  for (const Node* n : nodes_of(g, "rope")) {
    EXPECT_EQ(n->attrs.reals("inv_freq").size(), 3u);
    EXPECT_EQ(n->attrs.real("scale"), 1.0) << "the factor scales all of QK^T";
    turns += n->phase == graph::Phase::F;
  }
  EXPECT_EQ(turns, 2);
}

}  // namespace
}  // namespace quintet::models
