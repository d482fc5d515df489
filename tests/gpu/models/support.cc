#include "gpu/models/support.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/temp_folder.h"
#include "comm/local.h"
#include "config/names.h"
#include "config/parse.h"
#include "train/checkpointer.h"
#include "train/run_data.h"
#include "train/run_state.h"
#include "train/saved_state.h"
#include "train/support.h"

namespace quintet::test {
namespace {

constexpr const char* kRecipe = R"(name = "gpu-test"
[model]
family = "llama"
layers = 2
embed = 64
ffn = 160
heads = 4
kv_heads = 2
vocab = 256
[data]
seq_len = 96
[batch]
global = 8
micro = 2
[optimizer]
lr = 1e-2
[run]
steps = 10
seed = 3
device = "cuda"
deterministic = true
)";

// As in bench/gpu. In 16 bits attention and its gradient run through cuDNN, which has no deterministic
// gradient for packed documents.
const std::vector<std::string> kUnpacked = {"data.pack=false",
                                            "data.seq_len=128",
                                            "model.embed=128",
                                            "model.heads=2",
                                            "model.kv_heads=1",
                                            "memory.recompute=\"selective\"",
                                            "memory.recompute_ops=[\"norm\", \"activation\"]",
                                            "loss.chunk=128"};
const std::vector<std::string> kExperts = {"model.moe.experts=8",    "model.moe.top_k=2",
                                           "model.moe.ffn=48",       "model.moe.balance_loss=0.01",
                                           "model.moe.z_loss=0.001", "model.moe.first_dense=1"};

std::vector<std::string> joined(std::initializer_list<std::vector<std::string>> lists) {
  std::vector<std::string> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// What distinguishes each family, with limits and caps low enough to act on these small numbers.
const std::map<std::string, std::vector<std::string>>& families() {
  static const std::vector<std::string> routed = {"model.moe.experts=8", "model.moe.top_k=2",
                                                  "model.moe.ffn=48", "model.ffn=48",
                                                  "model.moe.balance_loss=0.01"};
  static const std::vector<std::string> gemma = {"model.norms=\"both\"",      "model.norm_offset=1",
                                                 "model.activation=\"gelu\"", "model.tied=true",
                                                 "model.sliding_window=40",   "model.full_attention_every=2",
                                                 "model.embed_scale=8",       "model.head_dim=32"};
  static const std::map<std::string, std::vector<std::string>> table = {
      {"gemma2",
       joined({gemma,
               {"model.attention_scale=0.4", "model.attention_soft_cap=0.05", "model.logit_soft_cap=0.3"}})},
      {"gemma2-odd-heads", joined({gemma, {"model.attention_soft_cap=0.05", "model.head_dim=20"}})},
      {"gemma2-unpacked", joined({gemma, {"model.attention_soft_cap=0.05", "data.pack=false"}})},
      {"gemma3", joined({gemma, {"model.qk_norm=true", "model.local_rope_theta=100"}})},
      {"phi", {"model.rotary_dim=12"}},
      {"olmo2", {"model.norms=\"post\"", "model.qk_norm=true", "model.qk_norm_over=\"all_heads\""}},
      {"smollm3", {"model.no_rope_every=2", "model.tied=true"}},
      {"neox",
       {"model.family=\"neox\"", "model.kv_heads=4", "model.rotary_dim=4", "model.parallel_blocks=true"}},
      {"glm", joined({routed,
                      {"model.qkv_bias=true", "model.qk_norm=true", "model.rotary_dim=8",
                       "model.moe.first_dense=1", "model.moe.shared_ffn=48", "model.moe.bias_rate=0.001",
                       "model.moe.score=\"sigmoid\"", "model.moe.scale=2.5"}})},
      {"deepseek-mtp",
       joined({routed,
               {"model.kv_heads=4", "model.mla.kv_rank=32", "model.mla.q_rank=48", "model.mla.nope_dim=16",
                "model.mla.rope_dim=16", "model.mla.v_dim=16", "model.moe.first_dense=1",
                "model.moe.shared_ffn=48", "model.moe.bias_rate=0.001", "model.moe.score=\"sigmoid\"",
                "model.mtp.layers=1"}})},
      {"gpt-oss",
       joined({routed,
               {"model.qkv_bias=true", "model.out_bias=true", "model.attention_sinks=true",
                "model.sliding_window=40", "model.full_attention_every=2", "model.activation=\"clamped\"",
                "model.activation_limit=0.05", "model.moe.bias=true", "model.moe.order=\"top_k_first\""}})},
      {"gpt-oss-unpacked", joined({routed,
                                   {"model.attention_sinks=true", "data.pack=false",
                                    "model.activation=\"clamped\"", "model.moe.bias=true"}})},
      {"dbrx", joined({routed, {"model.clip_qkv=0.1", "model.centered_norms=true"}})},
      {"llama4",
       joined({routed,
               {"model.qk_unit_norm=true", "model.attention_chunk=32", "model.no_rope_every=2",
                "model.position_scale=0.1", "model.position_floor=16", "model.moe.top_k=1",
                "model.moe.score=\"sigmoid\"", "model.moe.scale_input=true", "model.moe.shared_ffn=48"}})}};
  return table;
}

std::vector<std::string> settings_of(const std::string& model) {
  if (model == "llama") return {};
  if (model == "llama-unpacked") return kUnpacked;
  if (model == "llama-bench") return joined({kUnpacked, {"run.deterministic=false"}});
  if (model == "experts-bench") return joined({kUnpacked, kExperts, {"run.deterministic=false"}});
  if (model == "llama-tied-window")
    return {"model.tied=true", "model.sliding_window=40", "model.qk_norm=true", "model.qkv_bias=true"};
  if (model == "llama-wide-heads") return {"model.heads=2", "model.kv_heads=1", "model.head_dim=128"};
  if (model == "llama-odd")
    return {"model.embed=60", "model.ffn=100", "model.head_dim=20", "model.vocab=259"};
  if (model == "llama-recompute") return {"memory.recompute=\"full\"", "loss.chunk=64"};
  for (const char* name : {"muon", "lamb", "lars", "lion"})
    if (model == std::string("llama-") + name) return {fmt::format("optimizer.name=\"{}\"", name)};
  if (model == "llama-averages") return {"optimizer.ema=0.9"};
  if (model == "gpt2")
    return {"model.family=\"gpt2\"", "model.kv_heads=4", "model.max_positions=96", "model.ffn=256"};
  if (model == "gpt2-dropout")
    return {"model.family=\"gpt2\"", "model.kv_heads=4", "model.max_positions=96", "model.ffn=256",
            "model.dropout=0.1"};
  if (model == "latent")
    return {"model.kv_heads=4",      "model.mla.kv_rank=32",  "model.mla.q_rank=48",
            "model.mla.nope_dim=16", "model.mla.rope_dim=16", "model.mla.v_dim=16"};
  if (model == "experts") return kExperts;
  if (model == "experts-shared-bias")
    return {
        "model.moe.experts=8",     "model.moe.top_k=2",         "model.moe.ffn=48",           "model.ffn=48",
        "model.moe.shared_ffn=48", "model.moe.bias_rate=0.001", "model.moe.score=\"sigmoid\""};
  if (model == "experts-capacity")
    return {"model.moe.experts=8", "model.moe.top_k=2", "model.moe.ffn=48", "model.ffn=48",
            "model.moe.capacity_factor=1.25"};
  if (const auto family = families().find(model); family != families().end()) return family->second;
  throw std::runtime_error("no model " + model);
}

void expect_same(const std::vector<tools::Tensor>& a, const std::vector<tools::Tensor>& b,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t t = 0; t < a.size(); ++t) {
    ASSERT_EQ(a[t].values.size(), b[t].values.size()) << what << " " << a[t].name;
    EXPECT_EQ(std::memcmp(a[t].values.data(), b[t].values.data(), a[t].values.size() * sizeof(double)), 0)
        << what << " " << a[t].name << " differs";
  }
}

}  // namespace

const std::vector<std::string>& dense_models() {
  static const std::vector<std::string> list = {"llama",     "llama-tied-window", "llama-wide-heads",
                                                "llama-odd", "llama-recompute",   "llama-unpacked",
                                                "gpt2",      "gpt2-dropout",      "latent"};
  return list;
}

const std::vector<std::string>& expert_models() {
  static const std::vector<std::string> list = {"experts", "experts-shared-bias", "experts-capacity"};
  return list;
}

const std::vector<std::string>& family_models() {
  static const std::vector<std::string> list = [] {
    std::vector<std::string> names;
    for (const auto& [name, settings] : families()) names.push_back(name);
    return names;
  }();
  return list;
}

const std::vector<std::string>& update_models() {
  static const std::vector<std::string> list = {"llama-muon", "llama-lamb", "llama-lars", "llama-lion",
                                                "llama-averages"};
  return list;
}

const std::vector<std::string>& fast_models() {
  static const std::vector<std::string> list = {"llama-bench", "experts-bench"};
  return list;
}

config::Recipe gpu_recipe(const std::string& model, const std::string& dtype,
                          std::vector<std::string> settings) {
  std::vector<std::string> all = settings_of(model);
  const auto p = config::Precision::of(*config::value_of<base::DType>(dtype));
  const std::pair<std::string, std::string_view> keys[] = {{"compute", config::name_of(p.compute)},
                                                           {"master", config::name_of(p.master)},
                                                           {"moments", config::name_of(p.moments)},
                                                           {"gradients", config::name_of(p.gradients)},
                                                           {"reduce", config::name_of(p.reduce)}};
  for (const auto& [key, value] : keys) all.push_back("precision." + key + "=\"" + std::string(value) + "\"");
  all.insert(all.end(), settings.begin(), settings.end());
  return config::parse(kRecipe, all);
}

config::Recipe on_cpu(config::Recipe recipe) {
  recipe.run.device = config::DeviceKind::Cpu;
  return recipe;
}

tools::LayoutRun run(const config::Recipe& recipe, tools::LayoutOptions options) {
  const data::Dataset dataset = tools::training_data(recipe, true);
  return tools::run_layout(recipe, tools::training_batches(recipe, dataset), options);
}

void expect_same_bits(const tools::LayoutRun& a, const tools::LayoutRun& b) {
  expect_same(a.initial, b.initial, "initial weight");
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t s = 0; s < a.steps.size(); ++s) {
    const std::string step = "step " + std::to_string(s + 1) + ", ";
    EXPECT_EQ(a.steps[s].result.loss, b.steps[s].result.loss) << step;
    EXPECT_EQ(a.steps[s].result.grad_norm, b.steps[s].result.grad_norm) << step;
    EXPECT_FALSE(a.steps[s].result.skipped) << step;
    expect_same(a.steps[s].gradients, b.steps[s].gradients, step + "gradient");
    expect_same(a.steps[s].weights, b.steps[s].weights, step + "weight");
    expect_same(a.steps[s].states, b.steps[s].states, step + "state");
    expect_same(a.steps[s].sums, b.steps[s].sums, step + "sum");
  }
  ASSERT_EQ(a.moments.size(), b.moments.size());
  for (size_t k = 0; k < a.moments.size(); ++k)
    expect_same(a.moments[k].tensors, b.moments[k].tensors, a.moments[k].name.c_str());
}

std::vector<double> loss_curve(const config::Recipe& recipe, int64_t steps, int threads,
                               const std::vector<size_t>& documents) {
  const TempFolder folder;
  const std::string text = sample_text(200000);
  base::Path file = folder / "data.txt";
  if (documents.empty()) {
    base::write_file_atomically(file, text);
  } else {
    file = folder / "data.jsonl";
    std::string lines;
    for (size_t i = 0, at = 0; at < text.size(); at += documents[i++ % documents.size()])
      lines += nlohmann::json{{"text", text.substr(at, documents[i % documents.size()])}}.dump() + "\n";
    base::write_file_atomically(file, lines);
  }
  config::Recipe r = recipe;
  r.data.path = {file.string()};
  const train::RunData data = train::load_data(r);
  std::vector<double> losses;
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(r, world, {.threads = threads});
    for (int64_t s = 0; s < steps; ++s) losses.push_back(rank.step(s, data.train).loss);
  });
  return losses;
}

void save_state(train::Rank& rank, comm::World& world, config::Recipe recipe, const base::Path& folder) {
  recipe.checkpoint.dir = folder.string();
  train::Checkpointer(
      rank, world, recipe, [] { return to_json(train::RunState{}); }, [](const std::string&) {})
      .save(0);
}

void load_weights(train::Rank& rank, const base::Path& folder) {
  checkpoint::Reader reader(checkpoint::find_checkpoint(folder));
  train::load_state(rank, reader, train::LoadOptions{.weights_only = true});
}

}  // namespace quintet::test
