// Model geometry of a published row.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <regex>

#include "config/presets.h"
#include "published/map_run.h"

namespace quintet::published {
namespace {

using config::Family;
using config::Model;

// "14336", "8192 x16 experts top1 (+dense 16384)", "18432 dense/2048 x256 experts top8+1 shared",
// "2560 x64 experts top8 + shared".
struct Widths {
  int64_t dense = 0, expert = 0, experts = 0, top_k = 0;
  bool shared = false;
};

Widths parse_ffn(const std::string& text, const std::string& id) {
  static const std::regex plain(R"(\s*(\d{1,15})\s*)");
  static const std::regex moe(
      R"(\s*(?:(\d{1,15})\s*dense\s*/\s*)?(\d{1,15})\s*x\s*(\d{1,9})\s*experts(?:\s*top\s*(\d{1,9}))?(.*))");
  std::smatch m;
  Widths w;
  if (std::regex_match(text, m, plain)) {
    w.dense = std::stoll(m[1]);
  } else if (std::regex_match(text, m, moe)) {
    if (m[1].matched) w.dense = std::stoll(m[1]);
    w.expert = std::stoll(m[2]);
    w.experts = std::stoll(m[3]);
    w.top_k = m[4].matched ? std::stoll(m[4]) : 2;
    w.shared = contains(m[5].str(), "shared");
  } else {
    throw Unmodelled("ffn '" + text + "' of " + id + " cannot be parsed");
  }
  return w;
}

// Models of which the planner could cover only a part.
void refuse_other_models(const PublishedRun& row) {
  for (const auto& [word, why] : {std::pair{"Mamba", "state-space layers"},
                                  {"Nemotron-H", "state-space layers"},
                                  {"Nano", "state-space layers"},
                                  {"Next", "linear attention"},
                                  {"VL", "a vision encoder"}})
    if (contains(row.model, word)) throw Unmodelled(std::string("the model has ") + why);
  for (const char* word : {"LoRA", "PEFT"})
    if (contains(row.source, word) || contains(row.precision, word))
      throw Unmodelled("adapters are trained, not the model");
}

int64_t kv_heads_of(const PublishedRun& row) {
  int64_t heads = 0;
  const char* end = row.kv_heads.data() + row.kv_heads.size();
  const auto [stop, error] = std::from_chars(row.kv_heads.data(), end, heads);
  if (error != std::errc{} || stop != end || heads < 1)
    throw Unmodelled("kv_heads '" + row.kv_heads + "' cannot be parsed");
  return heads;
}

int64_t window_of_equal_work(int64_t window, int64_t seq) {
  // Alternate blocks see `window` keys, the others all: use one window for all blocks that leaves the same
  // average number of keys. With w <= seq, a query sees w - w^2 / (2 seq) keys on average.
  const auto keys = [&](double w) { return w - w * w / (2.0 * static_cast<double>(seq)); };
  const double n = static_cast<double>(seq);
  const double mean = (keys(std::min(static_cast<double>(window), n)) + keys(n)) / 2;
  return static_cast<int64_t>(std::lround(n - std::sqrt(std::max(0.0, n * n - 2 * n * mean))));
}

}  // namespace

bool contains(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

int64_t map_seq_len(const PublishedRun& row, const Source& source, Notes& notes) {
  if (row.seq) return *row.seq;
  if (source.seq == 0) throw Unmodelled("the row does not state the sequence length");
  notes.missing(fmt::format("sequence length not stated: {}", source.seq));
  return source.seq;
}

Model map_model(const PublishedRun& row, const Source& source, Notes& notes) {
  if (!row.layers || !row.hidden || row.ffn.empty())
    throw Unmodelled("the row does not state the model's geometry");
  const int64_t seq = map_seq_len(row, source, notes);
  const Widths w = parse_ffn(row.ffn, row.id);
  Model m;
  m.layers = *row.layers;
  m.embed = *row.hidden;
  refuse_other_models(row);
  if (contains(row.kv_heads, "MLA")) {
    m = *config::find_preset("deepseek-v3");
    m.preset.clear();
    m.layers = *row.layers;
    m.embed = *row.hidden;
    if (row.heads) m.heads = m.kv_heads = *row.heads;
    if (w.dense > 0) m.ffn = w.dense;
    if (w.experts == 0) throw Unmodelled("latent attention without experts");
    const config::Moe published = m.moe;
    m.moe = {.experts = w.experts, .top_k = w.top_k, .ffn = w.expert, .score = published.score};
    if (w.shared) m.moe.shared_ffn = w.expert;
    if (w.dense > 0) m.moe.first_dense = contains(row.model, "DeepSeek-V3") ? published.first_dense : 1;
    if (w.dense == 0) m.ffn = w.expert;
    if (!contains(row.model, "DeepSeek-V3")) notes.note("latent attention with DeepSeek-V3's ranks");
  } else {
    m.family = contains(row.model, "GPT-OSS")    ? Family::Llama
               : contains(row.model, "GPT")      ? Family::Gpt2
               : contains(row.model, "MPT")      ? Family::Gpt2
               : contains(row.model, "OPT")      ? Family::Gpt2
               : contains(row.model, "BLOOM")    ? Family::Gpt2
               : contains(row.model, "Nemotron") ? Family::Gpt2
                                                 : Family::Llama;
    m.heads = row.heads.value_or(0);
    if (m.heads == 0) {
      m.heads = 64;
      notes.missing("heads not stated: 64");
    }
    m.kv_heads = m.heads;
    if (!row.kv_heads.empty()) m.kv_heads = kv_heads_of(row);
    m.ffn = w.dense;
    const bool plain_gelu = m.family == Family::Gpt2;
    if (plain_gelu && m.kv_heads != m.heads) {
      m.family = Family::Llama;
      m.ffn = m.ffn * 2 / 3;
      notes.note("ungated feed-forward layer as a gated one of 2/3 the width: same FLOPs");
    }
    if (m.family == Family::Gpt2) {
      m.max_positions = seq;
      m.dropout = source.dropout;
      m.tied = true;
      if (contains(row.model, "MPT")) notes.note("ALiBi without biases as learned positions with biases");
      if (contains(row.model, "Nemotron")) {
        m.tied = false;
        notes.note("RoPE and squared ReLU as learned positions and GELU");
      }
    } else if (m.ffn % 2 != 0) {
      m.ffn = (m.ffn + 255) / 256 * 256;
      notes.note("ffn rounded up to a multiple of 256, as the model's code does");
    }
    if (contains(row.model, "Qwen3")) m.qk_norm = true, m.head_dim = 128;
    if (contains(row.model, "Qwen2")) m.qkv_bias = true, m.head_dim = 128;
    if (contains(row.model, "Mixtral")) m.head_dim = 128;
    if (contains(row.model, "GPT-OSS")) {
      m.head_dim = 64;
      m.qkv_bias = true;
      m.sliding_window = window_of_equal_work(128, seq);
      notes.note("a window of 128 in every other block as one window of equal work in all blocks");
    }
    if (w.experts > 0) {
      m.moe = {.experts = w.experts, .top_k = w.top_k, .ffn = w.expert};
      if (w.shared) m.moe.shared_ffn = contains(row.model, "Qwen2") ? w.expert * w.top_k : w.expert;
      if (contains(row.model, "Scout")) m.moe.shared_ffn = w.expert;
      m.ffn = w.expert;
    }
  }
  if (w.experts > 0) {
    m.moe.force_balance = true;  // no drops, no padding: the average load is simulated
  }
  if (contains(row.model, "DeepSeek") && source.deepseek_mtp && !contains(row.source, "w/o MTP")) {
    // One more block and one more matmul with the head: the work of three blocks.
    m.layers += 3;
    notes.note("multi-token prediction as three more blocks of equal work");
  }
  m.vocab = row.vocab.value_or(0);
  if (m.vocab == 0) {
    m.vocab = 50304;
    notes.note("vocabulary not stated: 50304, Megatron's padded GPT-2 vocabulary");
  }
  return m;
}

}  // namespace quintet::published
