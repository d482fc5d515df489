#include "config/presets.h"

#include <fmt/ranges.h>

#include <array>
#include <cctype>
#include <cmath>

#include "base/text.h"

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

Model bert(const char* name, int64_t layers, int64_t embed, int64_t heads, int64_t vocab) {
  return {.preset = name,
          .family = Family::Bert,
          .layers = layers,
          .embed = embed,
          .ffn = 4 * embed,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = embed / heads,
          .vocab = vocab,
          .tied = true,
          .norm_eps = 1e-12,
          .max_positions = 512,
          .token_types = 2,
          .dropout = 0.1,
          .init = InitScheme::Normal};
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
// Windows in all blocks but every second; scores and logits are capped. q.k is divided by sqrt(divisor).
Model gemma2(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads, int64_t kv_heads,
             int64_t head_dim, double divisor) {
  return {.preset = name,
          .layers = layers,
          .embed = embed,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .vocab = 256000,
          .tied = true,
          .rope_theta = 1e4,
          .norm_eps = 1e-6,
          .norms = NormPlaces::Both,
          .norm_offset = 1,
          .sliding_window = 4096,
          .full_attention_every = 2,
          .activation = Activation::Gelu,
          .embed_scale = std::sqrt(static_cast<double>(embed)),
          .attention_scale = 1 / std::sqrt(divisor),
          .attention_soft_cap = 50,
          .logit_soft_cap = 30};
}

// Norms of Q and K instead of caps; windows in all blocks but every sixth, with a theta of their own.
Model gemma3(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads, int64_t kv_heads,
             int64_t head_dim, double divisor, int64_t vocab, int64_t window, double factor) {
  Model m = gemma2(name, layers, embed, ffn, heads, kv_heads, head_dim, divisor);
  m.vocab = vocab;
  m.rope_theta = 1e6;
  m.local_rope_theta = 1e4;
  if (factor > 1) m.rope_scaling = {.kind = RopeScalingKind::Linear, .factor = factor};
  m.sliding_window = window;
  m.full_attention_every = 6;
  m.qk_norm = true;
  m.attention_soft_cap = m.logit_soft_cap = 0;
  return m;
}

Model olmo2(const char* name, int64_t layers, int64_t embed, int64_t ffn, int64_t heads, int64_t kv_heads) {
  return {.preset = name,
          .layers = layers,
          .embed = embed,
          .ffn = ffn,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = embed / heads,
          .vocab = 100352,
          .rope_theta = 5e5,
          .norm_eps = 1e-6,
          .norms = NormPlaces::Post,
          .qk_norm = true,
          .qk_norm_over = QkNormOver::AllHeads};
}

Model pythia(const char* name, int64_t layers, int64_t embed, int64_t heads, int64_t vocab) {
  return {.preset = name,
          .family = Family::Neox,
          .layers = layers,
          .embed = embed,
          .ffn = 4 * embed,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = embed / heads,
          .vocab = vocab,
          .rope_theta = 1e4,
          .rotary_dim = embed / heads / 4,
          .norm_eps = 1e-5,
          .parallel_blocks = true,
          .init = InitScheme::Neox};
}

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
          .init = InitScheme::Normal,  // as its reports say; the published configs have 0.02
          .init_stddev = 0.006,
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
    bert("bert-tiny", 4, 128, 4, 257),  // bytes and the mask
    Model{.preset = "tiny-moe", .layers = 4, .embed = 128, .ffn = 176, .heads = 4, .kv_heads = 2, .head_dim = 32,
          .vocab = 256, .rope_theta = 1e4, .norm_eps = 1e-5,
          .moe = {.experts = 8, .top_k = 2, .ffn = 176, .balance_loss = 1e-2}},
    tiny_deepseek(),

    //    name           layers  embed  heads
    gpt2("gpt2",             12,   768,    12),
    gpt2("gpt2-medium",      24,  1024,    16),
    gpt2("gpt2-large",       36,  1280,    20),
    gpt2("gpt2-xl",          48,  1600,    25),

    // Without letter case, in English.
    //    name           layers  embed  heads  vocab
    bert("bert-base",        12,   768,    12, 30522),
    bert("bert-large",       24,  1024,    16, 30522),

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
    //      name        layers  embed    ffn  heads  kv  head_dim  divisor
    gemma2("gemma2-2b",     26,  2304,  9216,     8,  4,      256,     256),
    gemma2("gemma2-9b",     42,  3584, 14336,    16,  8,      256,     256),
    gemma2("gemma2-27b",    46,  4608, 36864,    32, 16,      128,     144),
    //      name        layers  embed    ffn  heads  kv  head_dim  divisor   vocab  window  factor
    gemma3("gemma3-1b",     26,  1152,  6912,     4,  1,      256,     256, 262144,    512,      1),
    gemma3("gemma3-4b",     34,  2560, 10240,     8,  4,      256,     256, 262208,   1024,      8),
    gemma3("gemma3-12b",    48,  3840, 15360,    16,  8,      256,     256, 262208,   1024,      8),
    gemma3("gemma3-27b",    62,  5376, 21504,    32, 16,      128,     168, 262208,   1024,      8),
    //     name        layers  embed    ffn  heads  kv
    olmo2("olmo2-1b",      16,  2048,  8192,    16, 16),
    olmo2("olmo2-7b",      32,  4096, 11008,    32, 32),
    olmo2("olmo2-13b",     40,  5120, 13824,    40, 40),
    olmo2("olmo2-32b",     64,  5120, 27648,    40,  8),
    Model{.preset = "smollm3-3b", .layers = 36, .embed = 2048, .ffn = 11008, .heads = 16, .kv_heads = 4,
          .head_dim = 128, .vocab = 128256, .tied = true, .rope_theta = 5e6, .no_rope_every = 4, .norm_eps = 1e-6},
    Model{.preset = "phi3-mini", .layers = 32, .embed = 3072, .ffn = 8192, .heads = 32, .kv_heads = 32,
          .head_dim = 96, .vocab = 32064, .rope_theta = 1e4, .norm_eps = 1e-5, .sliding_window = 2047},
    Model{.preset = "phi4", .layers = 40, .embed = 5120, .ffn = 17920, .heads = 40, .kv_heads = 10,
          .head_dim = 128, .vocab = 100352, .rope_theta = 2.5e5, .norm_eps = 1e-5},
    Model{.preset = "mistral-small-24b", .layers = 40, .embed = 5120, .ffn = 32768, .heads = 32, .kv_heads = 8,
          .head_dim = 128, .vocab = 131072, .rope_theta = 1e8, .norm_eps = 1e-5},
    //      name          layers  embed  heads   vocab
    pythia("pythia-70m",       6,   512,     8,  50304),
    pythia("pythia-160m",     12,   768,    12,  50304),
    pythia("pythia-410m",     24,  1024,    16,  50304),
    pythia("pythia-1b",       16,  2048,     8,  50304),
    pythia("pythia-1.4b",     24,  2048,    16,  50304),
    pythia("pythia-2.8b",     32,  2560,    32,  50304),
    pythia("pythia-6.9b",     32,  4096,    32,  50432),
    pythia("pythia-12b",      36,  5120,    40,  50688),

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

namespace {

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Model& m : presets()) names.push_back(m.preset);
  return names;
}

// "llama38b" of "meta-llama/Llama-3-8B" and of "llama3-8b".
std::string letters_and_digits(std::string_view name) {
  std::string out;
  for (const char c : name.substr(name.rfind('/') + 1))
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) out += c;
  return base::lower_case(out);
}

}  // namespace

std::string likely_preset(const std::string& name) {
  const std::vector<std::string> names = preset_names();
  const std::string wanted = letters_and_digits(name);
  for (const std::string& p : names)
    if (letters_and_digits(p) == wanted) return p;
  for (const std::string& p : names)
    if (!wanted.empty() && letters_and_digits(p).starts_with(wanted)) return p;
  return base::nearest_word(name, names).value_or("");
}

std::string presets_beside(const std::string& likely) {
  std::vector<std::string> names = preset_names();
  if (likely.empty()) return fmt::format("known: {}", fmt::join(names, ", "));
  const std::string family = likely.substr(0, likely.find_first_of("0123456789-"));
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(family); });
  return fmt::format("similar ones: {} ('quintet init --help' lists all)", fmt::join(names, ", "));
}

}  // namespace quintet::config
