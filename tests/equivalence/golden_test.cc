// Loss and every gradient of tiny models against PyTorch (tests/golden/make_golden.py), on one rank and in
// a few layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "config/names.h"
#include "support/folders.h"
#include "tools/run_layout.h"

namespace quintet::tests {
namespace {

using Json = nlohmann::json;
using train::Rank;

constexpr double kTolerance = 1e-10;

Json load_golden(const std::string& name) {
  std::ifstream file(test::source_dir() + "/tests/golden/" + name + ".json");
  return Json::parse(file);
}

config::Moe moe_of(const Json& j) {
  config::Moe m;
  m.experts = j["experts"];
  m.top_k = j["top_k"];
  m.ffn = j["ffn"];
  m.shared_ffn = j["shared_ffn"];
  m.shared_gate = j["shared_gate"];
  m.first_dense = j["first_dense"];
  m.every = j["every"];
  m.score = j["score"] == "sigmoid" ? config::RouterScore::Sigmoid : config::RouterScore::Softmax;
  m.order = j["order"] == "top_k_first" ? config::RouterOrder::TopKFirst : config::RouterOrder::ScoreFirst;
  m.normalise = j["normalise"];
  m.scale = j["scale"];
  m.groups = j["groups"];
  m.groups_kept = j["groups_kept"];
  m.balance_loss = j["balance_loss"];
  m.balance_scope = j["balance_scope"] == "sequence" ? config::BalanceScope::Sequence
                    : j["balance_scope"] == "global" ? config::BalanceScope::Global
                                                     : config::BalanceScope::MicroBatch;
  m.z_loss = j["z_loss"];
  m.capacity_factor = j["capacity_factor"];
  m.drop = j["drop"] == "position" ? config::DropPolicy::Position : config::DropPolicy::Probability;
  m.capacity_group = j["capacity_group"];
  return m;
}

config::Model model_of(const Json& j) {
  config::Model m;
  m.family = j["family"] == "gpt2"   ? config::Family::Gpt2
             : j["family"] == "neox" ? config::Family::Neox
             : j["family"] == "bert" ? config::Family::Bert
                                     : config::Family::Llama;
  m.layers = j["layers"];
  m.embed = j["embed"];
  m.ffn = j["ffn"];
  m.heads = j["heads"];
  m.kv_heads = j["kv_heads"];
  m.head_dim = j["head_dim"];
  m.vocab = j["vocab"];
  m.tied = j["tied"];
  m.rope_theta = j["rope_theta"];
  m.norm_eps = j["norm_eps"];
  m.sliding_window = j["sliding_window"];
  m.qkv_bias = j["qkv_bias"];
  m.qk_norm = j["qk_norm"];
  m.max_positions = j["max_positions"];
  m.token_types = j.value("token_types", int64_t{0});
  m.norms = j.value("norms", "pre") == "pre" ? config::NormPlaces::Pre
            : j["norms"] == "post"           ? config::NormPlaces::Post
                                             : config::NormPlaces::Both;
  m.norm_offset = j.value("norm_offset", 0.0);
  if (j.value("activation", "silu") == "gelu") m.activation = config::Activation::Gelu;
  if (j.value("qk_norm_over", "head") == "all_heads") m.qk_norm_over = config::QkNormOver::AllHeads;
  m.full_attention_every = j.value("full_attention_every", int64_t{0});
  m.no_rope_every = j.value("no_rope_every", int64_t{0});
  m.rotary_dim = j.value("rotary_dim", int64_t{0});
  m.local_rope_theta = j.value("local_rope_theta", 0.0);
  m.embed_scale = j.value("embed_scale", 1.0);
  m.attention_scale = j.value("attention_scale", 0.0);
  m.attention_soft_cap = j.value("attention_soft_cap", 0.0);
  m.logit_soft_cap = j.value("logit_soft_cap", 0.0);
  m.parallel_blocks = j.value("parallel_blocks", false);
  if (j.contains("moe")) m.moe = moe_of(j["moe"]);
  if (j.contains("mtp")) m.mtp = {.layers = j["mtp"]["layers"], .loss = j["mtp"]["loss"]};
  if (j.contains("mla")) {
    const Json& a = j["mla"];
    m.mla = {.kv_rank = a["kv_rank"],
             .q_rank = a["q_rank"],
             .nope_dim = a["nope_dim"],
             .rope_dim = a["rope_dim"],
             .v_dim = a["v_dim"]};
  }
  const Json& rope = j["rope_scaling"];
  config::RopeScaling& s = m.rope_scaling;
  if (rope["kind"] == "none") return m;
  s.kind = rope["kind"] == "yarn" ? config::RopeScalingKind::Yarn : config::RopeScalingKind::Llama3;
  s.factor = rope["factor"];
  s.original_positions = rope["original_positions"];
  s.low_freq_factor = rope.value("low_freq_factor", s.low_freq_factor);
  s.high_freq_factor = rope.value("high_freq_factor", s.high_freq_factor);
  s.beta_fast = rope.value("beta_fast", s.beta_fast);
  s.beta_slow = rope.value("beta_slow", s.beta_slow);
  if (s.kind == config::RopeScalingKind::Yarn) s.attention_factor = 0.1 * std::log(s.factor) + 1;
  return m;
}

// The formula of make_golden.py.
double golden_weight(const std::string& name, int64_t index) {
  int64_t hash = 0;
  for (size_t j = 0; j < name.size(); ++j)
    hash += static_cast<int64_t>(j + 1) * static_cast<unsigned char>(name[j]);
  const double h = static_cast<double>(hash % 1009) / 1009;
  return (name.ends_with("norm.weight") ? 1.0 : 0.0) +
         0.1 * std::sin(0.37 * static_cast<double>(index + 1) + 1.3 * h);
}

void set_weights(Rank& rank) {
  rank.visit(program::holds_weights, [&](const Rank::Piece& piece, const layout::GlobalIndex& global) {
    rank.write(piece, [&](std::byte* data) {
      for (int64_t i = 0; i < piece.count; ++i) {
        const int64_t g = global(piece.first + i);
        reinterpret_cast<double*>(data)[i] = g < 0 ? 0 : golden_weight(piece.segment->name, g);
      }
    });
  });
  rank.weights_changed();
}

// Sequences of the file distributed over the data ranks, one micro-batch each.
train::StepResult golden_step(Rank& rank, int64_t step, const Json& golden, const config::Recipe& recipe) {
  const int64_t rows = recipe.batch.micro * recipe.data.seq_len, first = rank.dp_index() * rows;
  const auto column = [&](const char* name, int64_t i) {
    return golden[name][static_cast<size_t>(first + i)].get<int32_t>();
  };
  int64_t valid = 0;
  for (int64_t i = 0; i < rows; ++i) valid += column("labels", i) >= 0;
  return rank.step_with(
      step,
      [&](int, const std::vector<exec::InputRows>& inputs) {
        using graph::InputKind;
        for (const auto& [spec, data] : inputs) {
          const std::string name = spec.kind == InputKind::Ids ? "tokens" : graph::to_string(spec);
          for (int64_t i = 0; i < rows; ++i)
            data[i] = spec.kind == InputKind::Samples
                          ? static_cast<int32_t>((first + i) / recipe.data.seq_len)
                          : column(name.c_str(), i);
        }
      },
      valid);
}

// Auxiliary losses, summed over the blocks.
void expect_losses(const Rank& rank, const Json& golden) {
  using graph::SumKind;
  for (const SumKind kind : {SumKind::BalanceLoss, SumKind::ZLoss, SumKind::NextTokenLoss}) {
    const std::string name(to_string(kind));
    if (!golden.contains(name)) continue;
    double sum = 0;
    for (const Rank::Sum& s : rank.step_sums())
      if (s.kind == kind) sum += s.values[0];
    const double want = golden[name];
    EXPECT_NEAR(sum, want, kTolerance * want) << name;
  }
}

// One rank; tensor, data and context ranks; and for experts, expert ranks across these.
std::vector<config::Parallel> layouts_of(const config::Model& model) {
  using config::ContextMethod;
  std::vector<config::Parallel> layouts = {
      {},
      {.tp = 2, .sequence_parallel = true},
      {.dp_shard = 2, .zero = 3},
      {.cp = 2, .cp_method = ContextMethod::Gather},
      {.cp = 2, .cp_method = ContextMethod::Ring},
      {.cp = 2, .cp_method = ContextMethod::Ulysses},
  };
  if (model.family ==
      config::Family::Bert) {  // the vocabulary has one row of padding on the last tensor rank
    layouts.push_back({.tp = 4});
    layouts.push_back({.tp = 2, .cp = 2, .cp_method = ContextMethod::Ring});
    layouts.push_back({.pp = 2, .schedule = "1f1b", .chunks = 1, .stages = {1, 1}});
  }
  if (model.mtp.layers > 0) {
    layouts.push_back({.pp = 2, .schedule = "1f1b", .chunks = 1, .stages = {model.layers, 0}});
    layouts.push_back({.pp = 3, .schedule = "1f1b", .chunks = 1, .stages = {model.layers, 1, 0}});
  }
  if (model.moe.experts == 0) return layouts;
  layouts.push_back({.tp = 2, .etp = 2});
  if (model.moe.experts % 2 == 0) {
    layouts.push_back({.dp_shard = 2, .zero = 3, .ep = 2});
    layouts.push_back({.tp = 2, .sequence_parallel = true, .ep = 2});
    layouts.push_back({.tp = 2, .cp = 2, .cp_method = ContextMethod::Ring, .ep = 2, .etp = 2});
  }
  if (model.moe.experts % 4 == 0) layouts.push_back({.dp_shard = 2, .tp = 2, .ep = 4});
  return layouts;
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, LossAndGradientsAreThoseOfPyTorch) {
  const Json golden = load_golden(GetParam());
  config::Recipe recipe;
  recipe.model = model_of(golden["model"]);
  recipe.data.seq_len = golden["seq"];
  recipe.precision = config::Precision::of(base::DType::F64);
  recipe.optimizer.lr = 1e-3;
  recipe.loss.chunk = 5;
  recipe.run.steps = 2;
  const int64_t batch = golden["batch"];

  for (const config::Parallel& parallel : layouts_of(recipe.model)) {
    SCOPED_TRACE(fmt::format("tp {}, dp_shard {}, cp {} {}, ep {}, etp {}", parallel.tp, parallel.dp_shard,
                             parallel.cp, config::name_of(parallel.cp_method), parallel.ep, parallel.etp));
    recipe.parallel = parallel;
    recipe.batch = {batch, batch / parallel.dp(), 1};
    const data::Dataset dataset = tools::training_data(recipe, true);
    const tools::LayoutRun run = tools::run_layout(recipe, tools::training_batches(recipe, dataset),
                                                   {.steps = 1,
                                                    .step =
                                                        [&](Rank& rank, int64_t step) {
                                                          const train::StepResult result =
                                                              golden_step(rank, step, golden, recipe);
                                                          expect_losses(rank, golden);
                                                          return result;
                                                        },
                                                    .prepare = set_weights});
    EXPECT_EQ(run.steps[0].result.tokens, golden["valid"].get<int64_t>());
    const double loss = golden["loss"];
    EXPECT_NEAR(run.steps[0].result.loss, loss, kTolerance * loss);

    // The size of a gradient that is zero in exact arithmetic is meaningless: such gradients are compared
    // relative to all of them.
    double whole = 0;
    for (const Json& p : golden["parameters"])
      for (const double g : p["grad"]) whole += g * g;
    const auto& gradients = run.steps[0].gradients;
    ASSERT_EQ(gradients.size(), golden["parameters"].size());
    for (const Json& p : golden["parameters"]) {
      const std::string name = p["name"];
      const auto found = std::find_if(gradients.begin(), gradients.end(),
                                      [&](const tools::Tensor& t) { return t.name == name; });
      ASSERT_NE(found, gradients.end()) << name;
      const std::vector<double>& values = found->values;
      ASSERT_EQ(values.size(), p["grad"].size()) << name;
      double difference = 0, size = 0;
      for (size_t k = 0; k < p["grad"].size(); ++k) {
        const double g = p["grad"][k];
        difference += std::pow(values[k] - g, 2);
        size += g * g;
      }
      EXPECT_LE(std::sqrt(difference), kTolerance * std::max(std::sqrt(size), 1e-3 * std::sqrt(whole)))
          << name;
    }
    EXPECT_NEAR(run.steps[0].result.grad_norm, std::sqrt(whole), kTolerance * std::sqrt(whole));
  }
}

INSTANTIATE_TEST_SUITE_P(All, Golden,
                         testing::Values("gemma2", "gemma3", "olmo2", "smollm3", "neox", "neox_sequential",
                                         "llama", "llama3_rope_tied", "yarn_rope", "qwen2", "qwen3",
                                         "mistral", "packed_documents", "gpt2", "bert", "bert_untied",
                                         "mixtral", "top_k_first", "qwen_moe", "drop_by_position", "deepseek",
                                         "latent_without_q_rank", "deepseek_mtp", "llama_mtp"),
                         [](const auto& info) { return info.param; });

// Weights after three steps against torch.optim.Muon and AdamW (tests/golden/make_muon_golden.py): matrices
// of every expert, of tensor ranks and of shards included.
TEST(GoldenMuon, WeightsAreThoseOfPyTorch) {
  const Json golden = load_golden("muon");
  config::Recipe recipe;
  recipe.model = model_of(golden["model"]);
  recipe.data.seq_len = golden["seq"];
  recipe.precision = config::Precision::of(base::DType::F64);
  recipe.optimizer.kind = config::OptimizerKind::Muon;
  recipe.optimizer.lr = golden["lr"];
  recipe.optimizer.weight_decay = golden["weight_decay"];
  recipe.optimizer.clip_norm = 0;
  recipe.optimizer.muon.momentum = golden["momentum"];
  recipe.run.steps = golden["steps"];
  const int64_t batch = golden["batch"];
  for (const Json& wanted : golden["runs"])
    for (const config::Parallel& parallel :
         std::vector<config::Parallel>{{},
                                       {.dp_replicate = 2},
                                       {.dp_shard = 2, .zero = 1, .tp = 2},
                                       {.dp_shard = 2, .zero = 3, .ep = 2},
                                       {.tp = 2, .sequence_parallel = true, .ep = 2}}) {
      SCOPED_TRACE(fmt::format("{}, tp {}, dp {} x {}, zero {}, ep {}", wanted["scale"].get<std::string>(),
                               parallel.tp, parallel.dp_replicate, parallel.dp_shard, parallel.zero,
                               parallel.ep));
      recipe.parallel = parallel;
      recipe.batch = {batch, batch / parallel.dp(), 1};
      recipe.optimizer.muon.nesterov = wanted["nesterov"];
      recipe.optimizer.muon.scale =
          wanted["scale"] == "original" ? config::MuonScale::Original : config::MuonScale::MatchRmsAdamW;
      const data::Dataset dataset = tools::training_data(recipe, true);
      const tools::LayoutRun run = tools::run_layout(
          recipe, tools::training_batches(recipe, dataset),
          {.steps = golden["steps"],
           .step = [&](Rank& rank, int64_t step) { return golden_step(rank, step, golden, recipe); },
           .prepare = set_weights});
      const auto& weights = run.steps.back().weights;
      for (const Json& p : wanted["parameters"]) {
        const std::string name = p["name"];
        const auto found = std::find_if(weights.begin(), weights.end(),
                                        [&](const tools::Tensor& t) { return t.name == name; });
        ASSERT_NE(found, weights.end()) << name;
        ASSERT_EQ(found->values.size(), p["values"].size()) << name;
        double largest = 0;
        for (size_t k = 0; k < found->values.size(); ++k)
          largest = std::max(largest, std::abs(found->values[k] - p["values"][k].get<double>()));
        EXPECT_LE(largest, kTolerance) << name;
      }
    }
}

}  // namespace
}  // namespace quintet::tests
