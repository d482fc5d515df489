// Rules for sizes: what would take hours or all memory to compile is refused by estimate, with the likely
// mistake.
#include <algorithm>
#include <bit>

#include "base/text.h"
#include "config/limits.h"
#include "config/rule.h"

namespace quintet::config {
namespace {

using base::thousands;

constexpr int64_t kMaxBlocks = 2048;
// Every RoPE instruction holds the frequencies of its pairs, in memory, text and checksum.
constexpr int64_t kMaxHeadDim = 1 << 14;
// 2^50 parameters: bytes and FLOPs of a step then stay far below 2^63.
constexpr __int128 kMaxParameters = __int128{1} << 50;
// About 400 MB of program per rank, and a quarter of a minute to compile it.
constexpr __int128 kMaxInstructions = __int128{1} << 23;
// Per micro-batch, measured on Llama models: forward and backward of a block, and of a chunk of logits.
constexpr int64_t kInstructionsPerBlock = 45, kInstructionsPerChunk = 6;

std::string usual_length(int64_t longest) {
  const auto round =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(1, longest))));
  return fmt::format("{}, the length of one sequence in tokens", std::min<int64_t>(4096, round));
}

bool too_many_tokens(const Recipe& r) {
  return static_cast<__int128>(r.batch.global) * r.data.seq_len > kMaxTokensPerStep;
}

// What a number of tokens given for batch.global means in sequences, as many as micro-batches may hold.
int64_t sequences_meant(const Recipe& r) {
  const int64_t dp = r.parallel.dp(), seq = r.data.seq_len;
  const int64_t most = std::max<int64_t>(1, kMaxTokensPerMicroBatch * r.parallel.cp / seq);
  return std::clamp<int64_t>(r.batch.global / seq / dp, 1, most) * dp;
}

std::string not_tokens(const Recipe& r) {
  const int64_t meant = r.batch.global / r.data.seq_len;
  return ". It counts sequences, not tokens" +
         (meant == 0 ? std::string()
                     : fmt::format(": {} tokens would be {} sequence{}", thousands(r.batch.global),
                                   thousands(meant), meant == 1 ? "" : "s"));
}

std::string sequences_and_tokens(int64_t sequences, int64_t seq_len) {
  return fmt::format("{} ({} tokens)", sequences, thousands(sequences * seq_len));
}

void step_has_a_sane_number_of_tokens(const Recipe& r, const Fail& fail) {
  if (!too_many_tokens(r)) return;
  const int64_t global = r.batch.global, seq = r.data.seq_len;
  const std::string numbers =
      fmt::format("{} sequences of {} tokens are {} tokens per step; the limit is {}", thousands(global),
                  thousands(seq), base::human_count(static_cast<double>(global) * static_cast<double>(seq)),
                  thousands(kMaxTokensPerStep));
  const int64_t longest = std::min<int64_t>(kMaxTokensPerStep / std::max<int64_t>(1, r.parallel.dp()),
                                            kMaxTokensPerMicroBatch * r.parallel.cp);
  if (seq > longest) return fail("data.seq_len", numbers, usual_length(longest));
  fail("batch.global", numbers + not_tokens(r), sequences_and_tokens(sequences_meant(r), seq));
}

void micro_batch_has_a_sane_number_of_tokens(const Recipe& r, const Fail& fail) {
  if (too_many_tokens(r)) return;  // reported by another rule
  const int64_t micro = r.batch.micro, seq = r.data.seq_len,
                longest = kMaxTokensPerMicroBatch * r.parallel.cp;
  if (static_cast<__int128>(micro) * seq <= longest) return;
  const std::string numbers =
      fmt::format("a micro-batch of {} x {} tokens has {} tokens on each rank; the limit is {}",
                  thousands(micro), thousands(seq),
                  base::human_count(static_cast<double>(micro) * static_cast<double>(seq) /
                                    static_cast<double>(r.parallel.cp)),
                  thousands(kMaxTokensPerMicroBatch));
  if (seq > longest) return fail("data.seq_len", numbers, usual_length(longest));
  if (r.batch.accumulation > 1) return fail("batch.micro", numbers, sequences_and_tokens(longest / seq, seq));
  fail("batch.global", numbers + not_tokens(r), sequences_and_tokens(sequences_meant(r), seq));
}

// About, and of no more blocks than may be compiled.
__int128 parameters_of(const Model& m) {
  const __int128 embed = m.embed, attention = static_cast<__int128>(m.heads) * m.head_dim;
  const __int128 experts = static_cast<__int128>(m.moe.experts) * m.moe.ffn * m.expert_width();
  const __int128 latent = 2 * embed * m.moe.latent;
  const __int128 block = embed * (4 * attention + 3 * (m.ffn + m.moe.shared_ffn)) + 3 * experts + latent;
  return block * std::min(m.layers, kMaxBlocks) + embed * m.vocab;
}

void model_is_compilable(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family == Family::Custom) return;
  if (m.layers > kMaxBlocks)
    fail("model.layers",
         fmt::format("{} blocks; the limit is {}", thousands(m.layers), thousands(kMaxBlocks)),
         fmt::format("{}", kMaxBlocks));
  const __int128 all = parameters_of(m);
  if (all <= kMaxParameters) return;
  const std::pair<const char*, __int128> widths[] = {
      {"model.embed", m.embed},     {"model.ffn", m.ffn},
      {"model.heads", m.heads},     {"model.head_dim", m.head_dim},
      {"model.vocab", m.vocab},     {"model.moe.experts", m.moe.experts},
      {"model.moe.ffn", m.moe.ffn}, {"model.moe.shared_ffn", m.moe.shared_ffn}};
  const auto widest = std::max_element(std::begin(widths), std::end(widths),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
  fail(widest->first, fmt::format("{} makes a model of about {} parameters; the limit is {}",
                                  thousands(static_cast<int64_t>(widest->second)),
                                  base::human_count(static_cast<double>(all)),
                                  base::human_count(static_cast<double>(kMaxParameters))));
}

void heads_are_narrow(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family == Family::Custom || parameters_of(m) > kMaxParameters) return;  // reported by another rule
  const auto limit = [&](const char* key, int64_t width, int64_t usual) {
    if (width > kMaxHeadDim)
      fail(key,
           fmt::format("{} features in each head; the limit is {}", thousands(width), thousands(kMaxHeadDim)),
           fmt::format("{}", std::clamp<int64_t>(usual, 2, kMaxHeadDim)));
  };
  if (m.mla.kv_rank > 0) {
    limit("model.mla.nope_dim", m.mla.nope_dim, 128);
    limit("model.mla.rope_dim", m.mla.rope_dim, 64);
    limit("model.mla.v_dim", m.mla.v_dim, 128);
  } else {
    const int64_t share = m.embed / std::max<int64_t>(1, m.heads);
    limit("model.head_dim", m.head_dim, share / 2 * 2);
  }
}

void program_size_is_limited(const Recipe& r, const Fail& fail) {
  if (too_many_tokens(r) || r.model.layers > kMaxBlocks) return;  // reported by other rules
  const int64_t blocks = (r.model.layers + r.parallel.pp - 1) / r.parallel.pp;
  const int64_t rows = r.batch.micro * r.data.seq_len / r.parallel.cp;
  const int64_t chunks = r.loss.chunk > 0 ? (rows + r.loss.chunk - 1) / r.loss.chunk : 1;
  const __int128 each = kInstructionsPerBlock * blocks + kInstructionsPerChunk * chunks;
  const __int128 all = each * r.batch.accumulation;
  if (all <= kMaxInstructions) return;
  const std::string numbers = fmt::format(
      "{} micro-batches x {} blocks and {} chunk{} of logits would compile to about {} instructions per "
      "rank; the limit is {}",
      thousands(r.batch.accumulation), thousands(blocks), thousands(chunks), chunks == 1 ? "" : "s",
      base::human_count(static_cast<double>(all)), base::human_count(static_cast<double>(kMaxInstructions)));
  if (each > kMaxInstructions / 64)
    return fail("loss.chunk", numbers, fmt::format("{}", std::max<int64_t>(2 * r.loss.chunk, rows / 1024)));
  fail("batch.accumulation", numbers + ". batch.global counts sequences, not tokens",
       fmt::format("{} or fewer", static_cast<int64_t>(kMaxInstructions / each)));
}

}  // namespace

std::vector<Rule> size_rules() {
  return {
      {"a step has at most 2^30 tokens",
       {"batch.global", "data.seq_len", "parallel.dp_replicate", "parallel.dp_shard", "parallel.cp"},
       step_has_a_sane_number_of_tokens},
      {kMicroBatchIsSane,
       {"batch.global", "batch.micro", "batch.accumulation", "data.seq_len", "parallel.dp_replicate",
        "parallel.dp_shard", "parallel.cp"},
       micro_batch_has_a_sane_number_of_tokens},
      {"the model is small enough to compile",
       {"model.layers", "model.embed", "model.ffn", "model.heads", "model.head_dim", "model.vocab",
        "model.moe.experts", "model.moe.ffn", "model.moe.shared_ffn", "model.moe.latent"},
       model_is_compilable},
      {"a head has at most 2^14 features",
       {"model.family", "model.embed", "model.heads", "model.head_dim", "model.mla.kv_rank",
        "model.mla.nope_dim", "model.mla.rope_dim", "model.mla.v_dim"},
       heads_are_narrow},
      {"the step program is small enough to compile",
       {"model.layers", "batch.global", "batch.micro", "batch.accumulation", "data.seq_len", "loss.chunk",
        "parallel.pp", "parallel.cp"},
       program_size_is_limited},
  };
}

}  // namespace quintet::config
