#include "config/presets.h"

#include <array>
#include <cmath>

namespace quintet::config {
namespace {

constexpr auto kGpt2 = Family::Gpt2;
constexpr auto kLlama = Family::Llama;

// Llama 3.1 and 3.2 extend a context of 8192 by `factor`.
RopeScaling llama3(double factor) {
  return {.kind = RopeScalingKind::Llama3, .factor = factor, .original_positions = 8192};
}

// The rows of a family differ in a few columns; these helpers hold the common part.
Model gpt2(const char* name, int64_t layers, int64_t embed, int64_t heads) {
  return {.preset = name,
          .family = kGpt2,
          .layers = layers,
          .embed = embed,
          .ffn = 4 * embed,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = embed / heads,
          .vocab = 50257,
          .tied = true,
          .norm_eps = 1e-5,
          .max_positions = 1024,
          .dropout = 0.1};
}

Model llama2(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads, int64_t kv_heads) {
  return {.preset = name,
          .layers = layers,
          .embed = embed,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = embed / heads,
          .vocab = 32000,
          .rope_theta = 1e4,
          .norm_eps = 1e-5};
}

Model llama31(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads, int64_t kv_heads,
              double factor, bool tied) {
  return {.preset = name,
          .layers = layers,
          .embed = embed,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = embed / heads,
          .vocab = 128256,
          .tied = tied,
          .rope_theta = 5e5,
          .rope_scaling = llama3(factor),
          .norm_eps = 1e-5};
}

Model qwen25(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads, int64_t kv_heads,
             int64_t vocab, bool tied, double norm_eps) {
  return {.preset = name,
          .layers = layers,
          .embed = embed,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = embed / heads,
          .vocab = vocab,
          .tied = tied,
          .rope_theta = 1e6,
          .norm_eps = norm_eps,
          .qkv_bias = true};
}

Model qwen3(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads, int64_t kv_heads,
            bool tied) {
  return {.preset = name,
          .layers = layers,
          .embed = embed,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = 128,
          .vocab = 151936,
          .tied = tied,
          .rope_theta = 1e6,
          .norm_eps = 1e-6,
          .qk_norm = true};
}

// Balance losses of models with experts are taken from the published configurations.
Model mixtral(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads,
              double balance_loss) {
  return {.preset = name,
          .layers = layers,
          .embed = embed,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = 8,
          .head_dim = 128,
          .vocab = 32000,
          .rope_theta = 1e6,
          .norm_eps = 1e-5,
          .moe = {.experts = 8, .top_k = 2, .ffn = ffn, .balance_loss = balance_loss}};
}

Model qwen3_moe(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads) {
  Model m = qwen3(name, layers, embed, ffn, heads, 4, false);
  m.moe = {.experts = 128, .top_k = 8, .ffn = ffn, .balance_loss = 1e-3};
  return m;
}

// DeepSeek extends its context of 4096 by a factor of 40; `mscale` is the published mscale_all_dim.
Model deepseek(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads, int64_t vocab,
               int64_t q_rank, double mscale, Moe moe) {
  return {.preset = name,
          .layers = layers,
          .embed = embed,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = 192,
          .vocab = vocab,
          .rope_theta = 1e4,
          .rope_scaling = {.kind = RopeScalingKind::Yarn,
                           .factor = 40,
                           .original_positions = 4096,
                           .attention_factor = 0.1 * mscale * std::log(40.0) + 1},
          .norm_eps = 1e-6,
          .moe = moe,
          .mla = {.kv_rank = 512, .q_rank = q_rank, .nope_dim = 128, .rope_dim = 64, .v_dim = 128}};
}

Model tiny_deepseek() {
  return {.preset = "tiny-deepseek",
          .layers = 4,
          .embed = 128,
          .ffn = 352,
          .heads = 4,
          .kv_heads = 4,
          .head_dim = 48,
          .vocab = 256,
          .rope_theta = 1e4,
          .norm_eps = 1e-6,
          .moe = {.experts = 8,
                  .top_k = 2,
                  .ffn = 96,
                  .shared_ffn = 96,
                  .first_dense = 1,
                  .score = RouterScore::Sigmoid,
                  .scale = 2.5,
                  .groups = 4,
                  .groups_kept = 2,
                  .balance_loss = 1e-4,
                  .balance_scope = BalanceScope::Sequence,
                  .bias_rate = 1e-3},
          .mla = {.kv_rank = 32, .q_rank = 48, .nope_dim = 32, .rope_dim = 16, .v_dim = 32}};
}

// clang-format off
const auto& table() {
  static const std::array kPresets = {
    // Small enough for tests and laptops; byte vocabulary.
    Model{.preset = "llama-tiny", .layers = 4, .embed = 128, .ffn = 352, .heads = 4, .kv_heads = 2, .head_dim = 32,
          .vocab = 256, .rope_theta = 1e4, .norm_eps = 1e-5},
    Model{.preset = "mistral-tiny", .layers = 4, .embed = 128, .ffn = 352, .heads = 4, .kv_heads = 2, .head_dim = 32,
          .vocab = 256, .rope_theta = 1e4, .norm_eps = 1e-5, .sliding_window = 64},
    Model{.preset = "qwen3-tiny", .layers = 4, .embed = 128, .ffn = 352, .heads = 4, .kv_heads = 2, .head_dim = 64,
          .vocab = 256, .tied = true, .rope_theta = 1e6, .norm_eps = 1e-6, .qk_norm = true},
    Model{.preset = "gpt2-tiny", .family = kGpt2, .layers = 4, .embed = 128, .ffn = 512, .heads = 4, .kv_heads = 4,
          .head_dim = 32, .vocab = 256, .tied = true, .norm_eps = 1e-5, .max_positions = 512, .dropout = 0.1},
    Model{.preset = "tiny-moe", .layers = 4, .embed = 128, .ffn = 176, .heads = 4, .kv_heads = 2, .head_dim = 32,
          .vocab = 256, .rope_theta = 1e4, .norm_eps = 1e-5,
          .moe = {.experts = 8, .top_k = 2, .ffn = 176, .balance_loss = 1e-2}},
    tiny_deepseek(),

    //    name           layers  embed  heads
    gpt2("gpt2",             12,   768,    12),
    gpt2("gpt2-medium",      24,  1024,    16),
    gpt2("gpt2-large",       36,  1280,    20),
    gpt2("gpt2-xl",          48,  1600,    25),

    //      name         layers  embed    ffn  heads  kv
    llama2("llama2-7b",      32,  4096, 11008,    32, 32),
    llama2("llama2-13b",     40,  5120, 13824,    40, 40),
    llama2("llama2-70b",     80,  8192, 28672,    64,  8),

    //       name        layers  embed    ffn  heads  kv  rope factor  tied
    llama31("llama3-8b",     32,  4096, 14336,    32,  8,           8, false),
    llama31("llama3-70b",    80,  8192, 28672,    64,  8,           8, false),
    llama31("llama3-405b",  126, 16384, 53248,   128,  8,           8, false),
    llama31("llama3.2-1b",   16,  2048,  8192,    32,  8,          32, true),
    llama31("llama3.2-3b",   28,  3072,  8192,    24,  8,          32, true),

    // Version 0.1, the one with a sliding window.
    Model{.preset = "mistral-7b", .family = kLlama, .layers = 32, .embed = 4096, .ffn = 14336, .heads = 32,
          .kv_heads = 8, .head_dim = 128, .vocab = 32000, .rope_theta = 1e4, .norm_eps = 1e-5, .sliding_window = 4096},

    //      name           layers  embed    ffn  heads  kv   vocab  tied  norm eps
    qwen25("qwen2.5-0.5b",     24,   896,  4864,    14,  2, 151936, true,  1e-6),
    qwen25("qwen2.5-1.5b",     28,  1536,  8960,    12,  2, 151936, true,  1e-6),
    qwen25("qwen2.5-3b",       36,  2048, 11008,    16,  2, 151936, true,  1e-6),
    qwen25("qwen2.5-7b",       28,  3584, 18944,    28,  4, 152064, false, 1e-6),
    qwen25("qwen2.5-14b",      48,  5120, 13824,    40,  8, 152064, false, 1e-5),
    qwen25("qwen2.5-32b",      64,  5120, 27648,    40,  8, 152064, false, 1e-5),
    qwen25("qwen2.5-72b",      80,  8192, 29568,    64,  8, 152064, false, 1e-5),

    //     name         layers  embed    ffn  heads  kv  tied
    qwen3("qwen3-0.6b",     28,  1024,  3072,    16,  8, true),
    qwen3("qwen3-1.7b",     28,  2048,  6144,    16,  8, true),
    qwen3("qwen3-4b",       36,  2560,  9728,    32,  8, true),
    qwen3("qwen3-8b",       36,  4096, 12288,    32,  8, false),
    qwen3("qwen3-14b",      40,  5120, 17408,    40,  8, false),
    qwen3("qwen3-32b",      64,  5120, 25600,    64,  8, false),

    //       name             layers  embed    ffn  heads  balance loss
    mixtral("mixtral-8x7b",       32,  4096, 14336,    32,         0.02),
    mixtral("mixtral-8x22b",      56,  6144, 16384,    48,        0.001),  // version 0.1

    Model{.preset = "qwen1.5-moe-a2.7b", .layers = 24, .embed = 2048, .ffn = 1408, .heads = 16, .kv_heads = 16,
          .head_dim = 128, .vocab = 151936, .rope_theta = 1e6, .norm_eps = 1e-6, .qkv_bias = true,
          .moe = {.experts = 60, .top_k = 4, .ffn = 1408, .shared_ffn = 5632, .shared_gate = true, .normalise = false,
                  .balance_loss = 0.001}},
    //         name              layers  embed   ffn  heads
    qwen3_moe("qwen3-30b-a3b",       48,  2048,  768,    32),
    qwen3_moe("qwen3-235b-a22b",     94,  4096, 1536,    64),

    //        name               layers  embed    ffn  heads   vocab  q_rank  mscale
    deepseek("deepseek-v2-lite",     27,  2048, 10944,    16, 102400,      0,  0.707,
             {.experts = 64, .top_k = 6, .ffn = 1408, .shared_ffn = 2816, .first_dense = 1, .normalise = false,
              .balance_loss = 0.001, .balance_scope = BalanceScope::Sequence}),
    deepseek("deepseek-v2",          60,  5120, 12288,   128, 102400,   1536,  0.707,
             {.experts = 160, .top_k = 6, .ffn = 1536, .shared_ffn = 3072, .first_dense = 1, .normalise = false,
              .scale = 16, .groups = 8, .groups_kept = 3, .balance_loss = 0.001,
              .balance_scope = BalanceScope::Sequence}),
    deepseek("deepseek-v3",          61,  7168, 18432,   128, 129280,   1536,  1.0,
             {.experts = 256, .top_k = 8, .ffn = 2048, .shared_ffn = 2048, .first_dense = 3,
              .score = RouterScore::Sigmoid, .scale = 2.5, .groups = 8, .groups_kept = 4, .balance_loss = 1e-4,
              .balance_scope = BalanceScope::Sequence, .bias_rate = 1e-3}),
  };
  return kPresets;
}
// clang-format on

}  // namespace

std::span<const Model> presets() { return table(); }

const Model* find_preset(std::string_view name) {
  for (const Model& model : table())
    if (model.preset == name) return &model;
  return nullptr;
}

}  // namespace quintet::config
