// Loss and every gradient of tiny models against PyTorch (tests/golden/make_golden.py), on one rank and in
// two layouts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tools/layouts.h"

namespace quintet::tests {
namespace {

using Json = nlohmann::json;
using train::Rank;

constexpr double kTolerance = 1e-10;

Json load_golden(const std::string& name) {
  std::ifstream file(std::string(QUINTET_SOURCE_DIR) + "/tests/golden/" + name + ".json");
  return Json::parse(file);
}

config::Model model_of(const Json& j) {
  config::Model m;
  m.family = j["family"] == "gpt2" ? config::Family::Gpt2 : config::Family::Llama;
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
  rank.visit(train::StateKind::Weight, [](const Rank::Piece& piece, const layout::GlobalIndex& global) {
    for (int64_t i = 0; i < piece.count; ++i) {
      const int64_t g = global(piece.first + i);
      reinterpret_cast<double*>(piece.data)[i] = g < 0 ? 0 : golden_weight(piece.segment->name, g);
    }
  });
  rank.weights_changed();
}

// Sequences of the file divided over the data ranks, one micro-batch each.
train::StepResult golden_step(Rank& rank, int64_t step, const Json& golden, const config::Recipe& recipe) {
  const int64_t rows = recipe.batch.micro * recipe.data.seq_len, first = rank.dp_index() * rows;
  const auto column = [&](const char* name, int64_t i) {
    return golden[name][static_cast<size_t>(first + i)].get<int32_t>();
  };
  int64_t valid = 0;
  for (int64_t i = 0; i < rows; ++i) valid += column("labels", i) >= 0;
  return rank.step_with(
      step,
      [&](int, const std::vector<std::pair<std::string, int32_t*>>& inputs) {
        for (const auto& [name, data] : inputs)
          for (int64_t i = 0; i < rows; ++i)
            data[i] = name == "samples" ? static_cast<int32_t>((first + i) / recipe.data.seq_len)
                                        : column(name == "ids" ? "tokens" : name.c_str(), i);
      },
      valid);
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

  std::vector<config::Parallel> layouts(3);
  layouts[1].tp = 2;
  layouts[1].sequence_parallel = true;
  layouts[2].dp_shard = 2;
  layouts[2].zero = 3;
  for (const config::Parallel& parallel : layouts) {
    SCOPED_TRACE("tp " + std::to_string(parallel.tp) + ", dp_shard " + std::to_string(parallel.dp_shard));
    recipe.parallel = parallel;
    recipe.batch = {batch, batch / parallel.dp(), 1};
    const data::Dataset dataset = tools::training_data(recipe, true);
    const tools::LayoutRun run = tools::run_layout(
        recipe, tools::training_batches(recipe, dataset),
        {.steps = 1,
         .step = [&](Rank& rank, int64_t step) { return golden_step(rank, step, golden, recipe); },
         .prepare = set_weights});
    EXPECT_EQ(run.steps[0].result.tokens, golden["valid"].get<int64_t>());
    const double loss = golden["loss"];
    EXPECT_NEAR(run.steps[0].result.loss, loss, kTolerance * loss);

    // The size of a gradient that is zero in exact arithmetic says nothing: such are measured against all of
    // them.
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
                         testing::Values("llama", "llama3_rope_tied", "yarn_rope", "qwen2", "qwen3",
                                         "mistral", "packed_documents", "gpt2"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace quintet::tests
