#include "config/presets.h"

#include <array>

namespace quintet::config {
namespace {

constexpr auto kGpt2 = Family::Gpt2;
constexpr auto kLlama = Family::Llama;

// Llama 3.1 and 3.2 stretch a context of 8192 by `factor`.
RopeScaling llama3(double factor) {
  return {.kind = RopeScalingKind::Llama3, .factor = factor, .original_positions = 8192};
}

// The rows of one family differ in a few columns only; these helpers hold what the rows share.
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

// clang-format off
const auto& table() {
  static const std::array kPresets = {
    // Small enough for tests and for a laptop; byte vocabulary.
    Model{.preset = "llama-tiny", .layers = 4, .embed = 128, .ffn = 352, .heads = 4, .kv_heads = 2, .head_dim = 32,
          .vocab = 256, .rope_theta = 1e4, .norm_eps = 1e-5},
    Model{.preset = "mistral-tiny", .layers = 4, .embed = 128, .ffn = 352, .heads = 4, .kv_heads = 2, .head_dim = 32,
          .vocab = 256, .rope_theta = 1e4, .norm_eps = 1e-5, .sliding_window = 64},
    Model{.preset = "qwen3-tiny", .layers = 4, .embed = 128, .ffn = 352, .heads = 4, .kv_heads = 2, .head_dim = 64,
          .vocab = 256, .tied = true, .rope_theta = 1e6, .norm_eps = 1e-6, .qk_norm = true},
    Model{.preset = "gpt2-tiny", .family = kGpt2, .layers = 4, .embed = 128, .ffn = 512, .heads = 4, .kv_heads = 4,
          .head_dim = 32, .vocab = 256, .tied = true, .norm_eps = 1e-5, .max_positions = 512, .dropout = 0.1},

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

    // Version 0.1, the one with a window.
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
