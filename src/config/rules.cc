// The rules that span keys of a recipe, and the list of all of them.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cmath>
#include <string>
#include <vector>

#include "base/printable.h"
#include "base/text.h"
#include "config/byte_size.h"
#include "config/names.h"
#include "config/nearest.h"
#include "config/presets.h"
#include "config/resolve.h"
#include "config/rule.h"
#include "config/schema.h"
#include "config/tokenizer_size.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

const Model kDefaultModel;
const Optimizer kDefaultOptimizer;

// ---- names and paths

void name_is_a_file_name(const Recipe& r, const Fail& fail) {
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; };
  if (!r.name.empty() && r.name[0] != '.' && std::all_of(r.name.begin(), r.name.end(), plain)) return;
  std::string better;
  for (const unsigned char c : r.name)
    better += plain(c) && !(better.empty() && c == '.') ? static_cast<char>(c) : '-';
  fail("name",
       fmt::format(
           "is used as a folder name: use letters, digits, '-', '_' and '.', not starting with '.'; got "
           "\"{}\"",
           r.name),
       fmt::format("\"{}\"", better.empty() ? "run" : better));
}

void preset_exists(const Recipe& r, const Fail& fail) {
  if (r.model.preset.empty() || find_preset(r.model.preset) != nullptr) return;
  const std::string near = likely_preset(r.model.preset);
  fail("model.preset", fmt::format("\"{}\" is not a preset; {}", r.model.preset, presets_beside(near)),
       near.empty() ? "" : fmt::format("\"{}\"", near));
}

void tokenizer_loads(const Recipe& r, const Fail& fail) {
  const TokenizerSize size = tokenizer_size(r.data.tokenizer);
  if (!size.error.empty()) fail("data.tokenizer", size.error, "\"bytes\"");
}

void paths_are_named(const Recipe& r, const Fail& fail) {
  for (const std::string& path : r.data.path)
    if (path.empty()) fail("data.path", "contains an empty entry; each must name a file or a folder");
}

void skip_has_patterns(const Recipe& r, const Fail& fail) {
  for (const std::string& pattern : r.data.skip)
    if (pattern.find_first_not_of('/') == std::string::npos)
      fail("data.skip", fmt::format("contains \"{}\", which matches no name", pattern), "[]");
}

// ---- model geometry

void vocab_covers_tokenizer(const Recipe& r, const Fail& fail) {
  const int64_t ids = tokenizer_size(r.data.tokenizer).ids;
  if (r.model.vocab < ids)
    fail("model.vocab",
         fmt::format("{} is too small for data.tokenizer = \"{}\", which has {} tokens", r.model.vocab,
                     base::printable(r.data.tokenizer), ids),
         fmt::format("{}", ids));
}

void kv_heads_divide_heads(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.heads % m.kv_heads != 0)
    fail("model.kv_heads", fmt::format("{} does not divide model.heads {}", m.kv_heads, m.heads),
         nearest_divisors(m.heads, m.kv_heads));
}

void head_dim_is_even(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family != Family::Gpt2 && m.mla.kv_rank == 0 && m.head_dim % 2 != 0)
    fail("model.head_dim", fmt::format("{} is odd; RoPE rotates pairs of features", m.head_dim),
         nearest_multiples(2, m.head_dim));
}

void gpt2_heads_make_embed(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family != Family::Gpt2 || m.heads * m.head_dim == m.embed) return;
  fail("model.embed",
       fmt::format("{} must be model.heads {} x model.head_dim {} = {} in family gpt2", m.embed, m.heads,
                   m.head_dim, m.heads * m.head_dim),
       fmt::format("{}", m.heads * m.head_dim));
}

void gpt2_has_no_gqa(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family != Family::Llama && m.kv_heads != m.heads)
    fail("model.kv_heads",
         fmt::format("{} must equal model.heads {} in family {}", m.kv_heads, m.heads, name_of(m.family)),
         fmt::format("{}", m.heads));
}

void llama_keys_only_for_llama(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family == Family::Llama) return;
  const std::string why = fmt::format("in family {}", name_of(m.family));
  if (m.family == Family::Gpt2) {
    idle(fail, "model.rope_theta", m.rope_theta, 0.0, why);
    idle(fail, "model.rotary_dim", m.rotary_dim, int64_t{0}, why);
    idle(fail, "model.rope_scaling.kind", m.rope_scaling.kind, RopeScalingKind::None, why);
  }
  idle(fail, "model.local_rope_theta", m.local_rope_theta, 0.0, why);
  idle(fail, "model.no_rope_every", m.no_rope_every, int64_t{0}, why);
  idle(fail, "model.norms", m.norms, NormPlaces::Pre, why);
  idle(fail, "model.norm_offset", m.norm_offset, 0.0, why);
  idle(fail, "model.sliding_window", m.sliding_window, int64_t{0}, why);
  idle(fail, "model.qkv_bias", m.qkv_bias, false, why + ", which always has biases");
  idle(fail, "model.qk_norm", m.qk_norm, false, why);
  idle(fail, "model.activation", m.activation, Activation::Silu, why);
  idle(fail, "model.embed_scale", m.embed_scale, 1.0, why);
  idle(fail, "model.attention_scale", m.attention_scale, 0.0, why);
  idle(fail, "model.attention_soft_cap", m.attention_soft_cap, 0.0, why);
  idle(fail, "model.logit_soft_cap", m.logit_soft_cap, 0.0, why);
  idle(fail, "model.moe.experts", m.moe.experts, int64_t{0}, why);
  idle(fail, "model.mla.kv_rank", m.mla.kv_rank, int64_t{0}, why);
  idle(fail, "model.mtp.layers", m.mtp.layers, int64_t{0}, why);
}

void gpt2_keys_only_for_gpt2(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family == Family::Gpt2) return;
  const std::string why = fmt::format("in family {}", name_of(m.family));
  idle(fail, "model.max_positions", m.max_positions, int64_t{0}, why + ", which has rotary positions");
  idle(fail, "model.dropout", m.dropout, 0.0, why);
}

void sequence_fits_positions(const Recipe& r, const Fail& fail) {
  const Model& m = r.model;
  if (m.family != Family::Gpt2) return;
  if (m.max_positions == 0)
    fail("model.max_positions", "is required: family gpt2 has learned positions",
         fmt::format("{} (data.seq_len)", r.data.seq_len));
  else if (r.data.seq_len > m.max_positions)
    fail("data.seq_len", fmt::format("{} exceeds model.max_positions {}", r.data.seq_len, m.max_positions),
         fmt::format("{}", m.max_positions));
}

void rope_theta_is_above_one(const Recipe& r, const Fail& fail) {
  if (r.model.family != Family::Gpt2 && !(r.model.rope_theta > 1))
    fail("model.rope_theta",
         fmt::format("{} must be greater than 1: frequencies decrease along head_dim", r.model.rope_theta),
         "10000");
}

void rope_scaling_keys_fit_kind(const Recipe& r, const Fail& fail) {
  const RopeScaling& s = r.model.rope_scaling;
  const RopeScaling& d = kDefaultModel.rope_scaling;
  const std::string why = fmt::format("with model.rope_scaling.kind = \"{}\"", name_of(s.kind));
  if (s.kind == RopeScalingKind::None) idle(fail, "model.rope_scaling.factor", s.factor, d.factor, why);
  if (s.kind == RopeScalingKind::None || s.kind == RopeScalingKind::Linear)
    idle(fail, "model.rope_scaling.original_positions", s.original_positions, d.original_positions, why);
  if (s.kind != RopeScalingKind::Llama3) {
    idle(fail, "model.rope_scaling.low_freq_factor", s.low_freq_factor, d.low_freq_factor, why);
    idle(fail, "model.rope_scaling.high_freq_factor", s.high_freq_factor, d.high_freq_factor, why);
  }
  if (s.kind != RopeScalingKind::Yarn) {
    idle(fail, "model.rope_scaling.beta_fast", s.beta_fast, d.beta_fast, why);
    idle(fail, "model.rope_scaling.beta_slow", s.beta_slow, d.beta_slow, why);
    idle(fail, "model.rope_scaling.attention_factor", s.attention_factor, d.attention_factor, why);
  }
}

void rope_scaling_knows_its_origin(const Recipe& r, const Fail& fail) {
  const RopeScaling& s = r.model.rope_scaling;
  if ((s.kind == RopeScalingKind::Llama3 || s.kind == RopeScalingKind::Yarn) && s.original_positions == 0)
    fail("model.rope_scaling.original_positions",
         fmt::format("is required: \"{}\" needs the context length before the extension", name_of(s.kind)),
         "8192");
}

void rope_scaling_band_is_ordered(const Recipe& r, const Fail& fail) {
  const RopeScaling& s = r.model.rope_scaling;
  if (s.kind == RopeScalingKind::Llama3 && s.low_freq_factor > s.high_freq_factor)
    fail("model.rope_scaling.low_freq_factor",
         fmt::format("{} must be at most high_freq_factor {}", s.low_freq_factor, s.high_freq_factor),
         "1 with 4");
  if (s.kind == RopeScalingKind::Yarn && s.beta_slow >= s.beta_fast)
    fail("model.rope_scaling.beta_slow",
         fmt::format("{} must be less than beta_fast {}", s.beta_slow, s.beta_fast), "1 with 32");
}

// ---- layout

void world_is_in_reach(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (world_in_reach(p)) return;
  const __int128 world = wide_world(p), others = world / p.dp_replicate;
  fail("parallel.dp_replicate",
       fmt::format("{} = {} ranks; the limit is {}", layout_text(p), world, kMaxWorld),
       fmt::format("{}", std::max<__int128>(1, kMaxWorld / others)));
}

void batch_arithmetic(const Recipe& r, const Fail& fail) {
  const Batch& b = r.batch;
  const Parallel& p = r.parallel;
  const int64_t dp = p.dp();
  const std::string dp_text =
      fmt::format("dp {} (dp_replicate {} x dp_shard {})", dp, p.dp_replicate, p.dp_shard);
  int64_t product = 0;
  if (__builtin_mul_overflow(b.micro * dp, b.accumulation, &product)) product = -1;
  if (product == b.global) return;
  // Only values that satisfy the whole equation, whichever of the three sizes were derived.
  std::vector<std::string> near;
  if (product > 0 && product <= static_cast<int64_t>(kMaxCount)) near.push_back(fmt::format("{}", product));
  const auto split = [&](const char* name, int64_t unit, int64_t other) {
    if (unit > b.global) return;
    if (b.global % unit == 0 && b.global / unit != other)
      near.push_back(fmt::format("{} {}", name, b.global / unit));
  };
  split("accumulation", b.micro * dp, b.accumulation);
  split("micro", b.accumulation * dp, b.micro);
  const int64_t unit = b.micro * dp, above = (b.global / unit + 1) * unit;
  if (b.global % unit != 0 && above != product)
    near.push_back(fmt::format("{} with accumulation {}", above, above / unit));
  const std::string text =
      b.global % dp != 0 ? fmt::format("{} is not a multiple of {}", b.global, dp_text)
                         : fmt::format("{} must be micro {} x accumulation {} x {}, which is {}", b.global,
                                       b.micro, b.accumulation, dp_text,
                                       product < 0 ? std::string("too large") : fmt::format("{}", product));
  fail("batch.global", text, fmt::format("{}", fmt::join(near, ", or ")));
}

void tp_divides_heads(const Recipe& r, const Fail& fail) {
  if (r.model.heads % r.parallel.tp != 0)
    fail("parallel.tp", fmt::format("{} does not divide model.heads {}", r.parallel.tp, r.model.heads),
         nearest_divisors(r.model.heads, r.parallel.tp));
}

void tp_fits_kv_heads(const Recipe& r, const Fail& fail) {
  const int64_t tp = r.parallel.tp, kv = r.model.kv_heads;
  if (tp % kv == 0 || kv % tp == 0) return;
  const std::string near = tp < kv ? nearest_divisors(kv, tp) : nearest_multiples(kv, tp);
  fail("parallel.tp", fmt::format("{} must divide model.kv_heads {} or be a multiple of it", tp, kv), near);
}

void tp_divides_ffn(const Recipe& r, const Fail& fail) {
  if (r.model.has_dense_block() && r.model.ffn % r.parallel.tp != 0)
    fail("parallel.tp", fmt::format("{} does not divide model.ffn {}", r.parallel.tp, r.model.ffn),
         nearest_divisors(r.model.ffn, r.parallel.tp));
}

void sequence_parallel_needs_tp(const Recipe& r, const Fail& fail) {
  if (r.parallel.tp == 1)
    idle(fail, "parallel.sequence_parallel", r.parallel.sequence_parallel, false,
         "with parallel.tp = 1: it shards token rows over tp");
}

// Sequence parallel shards token rows over the tensor ranks; so does the exchange with experts, always.
void token_rows_divide(const Recipe& r, const Fail& fail) {
  const int64_t micro = r.batch.micro, seq = r.data.seq_len, tp = r.parallel.tp, cp = r.parallel.cp;
  const bool experts = r.model.moe.experts > 0;
  if ((!r.parallel.sequence_parallel && !experts) || micro * seq % (tp * cp) == 0) return;
  if (cp > 1 && seq % (2 * cp) != 0) return;  // reported by another rule
  fail(r.parallel.sequence_parallel ? "parallel.sequence_parallel" : "parallel.tp",
       fmt::format("{} batch.micro {} x data.seq_len {}{} = {} token rows over parallel.tp {}, which does "
                   "not divide them",
                   r.parallel.sequence_parallel ? "shards" : "the expert exchange shards", micro, seq,
                   cp > 1 ? fmt::format(" / cp {}", cp) : "", micro * seq / cp, tp),
       fmt::format("data.seq_len {}{}", nearest_multiples(cp > 1 ? 2 * cp * tp : tp, seq),
                   experts ? "" : ", or sequence_parallel = false"));
}

void zero_needs_dp_shard(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.zero == 0 || p.dp_shard * p.cp > 1) return;
  fail("parallel.zero",
       fmt::format(
           "{} has no effect with parallel.dp_shard = 1 and parallel.cp = 1: there is nothing to shard over",
           p.zero),
       p.dp_replicate > 1 ? fmt::format("0, or dp_shard {} with dp_replicate 1", p.dp_replicate)
                          : "0, or dp_shard 2");
}

void reshard_needs_zero_3(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  using Kind = ReshardAfterForward::Kind;
  if (p.zero == 3 || p.reshard_after_forward.kind == Kind::Yes) return;
  const bool to_ranks = p.reshard_after_forward.kind == Kind::ToRanks;
  fail(
      "parallel.reshard_after_forward",
      fmt::format("{} has no effect with parallel.zero = {}: only zero 3 stores parameters in shards",
                  to_ranks ? fmt::format("{}", p.reshard_after_forward.ranks) : std::string("false"), p.zero),
      "true, or zero 3");
}

void reshard_ranks_divide(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.zero != 3 || p.reshard_after_forward.kind != ReshardAfterForward::Kind::ToRanks) return;
  const int64_t k = p.reshard_after_forward.ranks, n = p.dp_shard * p.cp;
  if (k > 1 && k < n && n % k == 0) return;
  std::string legal;
  for (int64_t d = 2; d <= n / 2; ++d)
    if (n % d == 0) legal += (legal.empty() ? "" : ", ") + fmt::format("{}", d);
  const std::string over = p.cp == 1 ? fmt::format("parallel.dp_shard {}", n)
                                     : fmt::format("parallel.dp_shard {} x cp {} = {}", p.dp_shard, p.cp, n);
  fail("parallel.reshard_after_forward",
       fmt::format("{} must divide {} and be greater than 1 and less than {}", k, over, n),
       legal.empty() ? "true" : legal + " or true");
}

void prefetch_needs_zero(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.zero == 0 && p.prefetch > 1)
    fail("parallel.prefetch",
         fmt::format("{} has no effect with parallel.zero = 0, which gathers nothing", p.prefetch), "1");
}

// ---- precision

void f64_is_all_or_nothing(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  const bool wide = p.compute == base::DType::F64;
  const auto check = [&](const char* key, base::DType t) {
    if ((t == base::DType::F64) == wide) return;
    fail(key,
         fmt::format("{} contradicts precision.compute = \"{}\": f64 must be used for all five keys or none",
                     name_of(t), name_of(p.compute)),
         wide ? "\"f64\"" : "\"f32\"");
  };
  if (!p.split_master()) check("precision.master", p.master_type());
  check("precision.moments", p.moments);
  check("precision.gradients", p.gradients);
  check("precision.reduce", p.reduce);
}

void master_is_not_narrower(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.master == Master::Bf16)
    fail("precision.master",
         "bf16 master weights lose every update smaller than 1/256 of the weight; use f32 precision",
         p.compute == base::DType::BF16 ? "\"split\"" : "\"f32\"");
}

void split_masters_need_bf16_compute(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.split_master() && p.compute != base::DType::BF16)
    fail("precision.master",
         fmt::format("\"split\" requires precision.compute = \"bf16\", got \"{}\": the upper half of a split "
                     "master is the bf16 weight used by matmuls",
                     name_of(p.compute)),
         fmt::format("\"{}\"", name_of(Precision::of(p.compute).master)));
}

void bf16_gradients_need_bf16_compute(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.gradients == base::DType::BF16 && p.compute != base::DType::BF16)
    fail(
        "precision.gradients",
        fmt::format("\"bf16\" requires precision.compute = \"bf16\", got \"{}\"; to communicate gradients in "
                    "bf16, set precision.reduce",
                    name_of(p.compute)),
        fmt::format("\"{}\"", name_of(Precision::of(p.compute).gradients)));
}

// With f64 the moments stay f64 numbers and are rounded to those of bf16: what verifies layouts.
void stochastic_rounding_needs_bf16_moments(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.moments_rounding == MomentsRounding::Nearest) return;
  if (r.optimizer.kind == OptimizerKind::AdamW8bit)
    return fail(
        "precision.moments_rounding",
        "\"stochastic\" has no effect with optimizer.name = \"adamw8bit\", which stores the nearest code",
        "\"nearest\"");
  for (const OptimizerKind kind : {OptimizerKind::Lamb, OptimizerKind::Lars, OptimizerKind::Muon,
                                   OptimizerKind::Adafactor, OptimizerKind::Custom})
    if (r.optimizer.uses(kind))
      return fail(
          "precision.moments_rounding",
          fmt::format("\"stochastic\" is not supported yet with optimizer.name = \"{}\"", name_of(kind)),
          "\"nearest\"");
  if (p.moments == base::DType::F32)
    fail("precision.moments_rounding",
         "\"stochastic\" requires precision.moments = \"bf16\", got \"f32\", which is not rounded",
         "\"nearest\"");
}

void f16_is_only_for_compute(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  const auto check = [&](const char* key, base::DType t) {
    if (t == base::DType::F16)
      fail(key, "\"f16\" is allowed only for precision.compute: gradient sums overflow it, squares underflow",
           fmt::format("\"{}\"", name_of(Precision::of(p.compute).reduce)));
  };
  check("precision.moments", p.moments);
  check("precision.gradients", p.gradients);
  // By default it follows the gradients, which are reported above.
  if (p.gradients != base::DType::F16) check("precision.reduce", p.reduce);
}

void tf32_needs_f32_on_a_gpu(const Recipe& r, const Fail& fail) {
  if (!r.precision.tf32) return;
  if (r.run.device != DeviceKind::Cuda)
    fail("precision.tf32", "requires run.device = \"cuda\": CPUs have no tf32 matmuls", "false");
  else if (r.precision.compute != base::DType::F32)
    fail("precision.tf32",
         fmt::format("has no effect with precision.compute = \"{}\": it applies to f32 matmuls",
                     name_of(r.precision.compute)),
         "false");
}

void loss_scale_window_needs_dynamic(const Recipe& r, const Fail& fail) {
  if (!r.precision.loss_scale.dynamic)
    idle(fail, "precision.loss_scale_window", r.precision.loss_scale_window, Precision{}.loss_scale_window,
         "unless precision.loss_scale = \"dynamic\"");
}

// ---- pipeline, memory

void schedule_is_known(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  const auto known = pipeline_schedules();
  if (p.pp == 1 && !p.schedule.empty())
    return fail("parallel.schedule", fmt::format("\"{}\" has no effect with parallel.pp = 1", p.schedule),
                "leave it out");
  if (const auto file = schedule_file(p.schedule)) {
    if (file->empty()) fail("parallel.schedule", "\"file:\" has no path", "\"file:PATH\"");
  } else if (p.pp > 1 && std::find(known.begin(), known.end(), p.schedule) == known.end()) {
    const std::string near =
        base::nearest_word(p.schedule, std::vector<std::string>{known.begin(), known.end()}).value_or("");
    fail("parallel.schedule",
         fmt::format("\"{}\" is not a schedule; known: {}, or \"file:PATH\"", p.schedule,
                     fmt::join(known, ", ")),
         fmt::format("\"{}\"", near.empty() ? "1f1b" : near));
  }
}

void chunks_fit_schedule(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.pp == 1) {
    if (p.chunks != 1)
      fail("parallel.chunks", fmt::format("{} has no effect with parallel.pp = 1", p.chunks), "1");
    return;
  }
  const ScheduleTraits schedule = traits_of(p.schedule);
  if (schedule.kind == PipelineSchedule::File) return;  // the compiler compares the file with the recipe
  const bool interleaved = schedule.kind == PipelineSchedule::Interleaved;
  if (schedule.v_shaped && p.chunks != 2)
    fail("parallel.chunks", fmt::format("schedule \"{}\" requires 2 chunks, got {}", p.schedule, p.chunks),
         "2");
  if (!schedule.two_chunks() && p.chunks != 1)
    fail("parallel.chunks", fmt::format("schedule \"{}\" requires 1 chunk, got {}", p.schedule, p.chunks),
         "1, or parallel.schedule \"interleaved\"");
  if (interleaved && p.chunks == 1)
    fail("parallel.chunks", "schedule \"interleaved\" with 1 chunk is 1f1b",
         "2, or parallel.schedule \"1f1b\"");
  const int64_t m = r.batch.accumulation;
  if (interleaved && p.chunks > 1 && m > 0 && m % p.pp != 0)
    fail("batch.accumulation",
         fmt::format(
             "interleaved runs micro-batches in groups of parallel.pp = {}, and {} is not a multiple of it",
             p.pp, m),
         m > p.pp ? fmt::format("{} or {}", m / p.pp * p.pp, (m / p.pp + 1) * p.pp) : std::to_string(p.pp));
}

void stages_fit_layers(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  const int64_t places = p.pp * std::max<int64_t>(1, p.chunks);
  if (p.pp > 1 && places > r.model.layers)
    fail("parallel.pp",
         fmt::format("{} stages x {} chunks = {} virtual stages, more than the model's {} blocks", p.pp,
                     p.chunks, places, r.model.layers),
         std::to_string(std::max<int64_t>(1, r.model.layers / std::max<int64_t>(1, p.chunks))));
  if (p.stages.empty()) return;
  int64_t sum = 0;
  for (const int64_t n : p.stages) sum += n;
  if (p.pp == 1)
    fail("parallel.stages", "has no effect with parallel.pp = 1", "[]");
  else if (static_cast<int64_t>(p.stages.size()) != places || sum != r.model.layers)
    fail("parallel.stages",
         fmt::format(
             "has {} entries with a sum of {}; {} stages x {} chunks need {} entries with a sum of the "
             "model's {} blocks",
             p.stages.size(), sum, p.pp, p.chunks, places, r.model.layers),
         "leave it out to balance by cost");
}

void recompute_keys_fit_kind(const Recipe& r, const Fail& fail) {
  const Memory& m = r.memory;
  if (m.recompute != RecomputeKind::Selective && !m.recompute_ops.empty())
    fail("memory.recompute_ops",
         fmt::format("has no effect with memory.recompute = \"{}\"", name_of(m.recompute)), "[]");
  if (m.recompute != RecomputeKind::Full && m.recompute_every != 1)
    fail("memory.recompute_every",
         fmt::format("{} has no effect with memory.recompute = \"{}\"", m.recompute_every,
                     name_of(m.recompute)),
         "1");
  const bool fit = m.recompute == RecomputeKind::Fit;
  if (fit && m.budget.value == 0)
    fail("memory.budget", "is required by memory.recompute = \"fit\": the memory of one rank", "\"6GiB\"");
  if (!fit && m.budget.value != 0)
    fail("memory.budget",
         fmt::format("{} has no effect with memory.recompute = \"{}\"", byte_size_text(m.budget.value),
                     name_of(m.recompute)),
         "leave it out, or memory.recompute \"fit\"");
  if (m.recompute == RecomputeKind::Full && m.recompute_every > r.model.layers)
    fail("memory.recompute_every",
         fmt::format("{} exceeds the model's {} blocks", m.recompute_every, r.model.layers),
         std::to_string(r.model.layers));
}

void recompute_ops_are_known(const Recipe& r, const Fail& fail) {
  const auto known = recompute_classes();
  for (const std::string& word : r.memory.recompute_ops)
    if (std::find(known.begin(), known.end(), word) == known.end())
      fail("memory.recompute_ops",
           fmt::format("contains \"{}\", which is not an op class; known: {}", word, fmt::join(known, ", ")),
           fmt::format("[\"{}\"]", known.front()));
}

// ---- optimizer

// A key must apply to the optimizer of some parameters, whether of all or of a group.
void optimizer_keys_fit_name(const Recipe& r, const Fail& fail) {
  const Optimizer& o = r.optimizer;
  const Optimizer& d = kDefaultOptimizer;
  if (o.uses(OptimizerKind::Custom)) return;  // which may read any key
  const bool muon = o.uses(OptimizerKind::Muon);
  const bool adam = muon || o.uses(OptimizerKind::AdamW) || o.uses(OptimizerKind::Adam) ||
                    o.uses(OptimizerKind::AdamW8bit) || o.uses(OptimizerKind::Lamb);
  const std::string why = fmt::format("with optimizer.name = \"{}\"", name_of(o.kind));
  if (!o.uses(OptimizerKind::Sgd) && !o.uses(OptimizerKind::Lars))
    idle(fail, "optimizer.momentum", o.momentum, d.momentum, why);
  if (!o.uses(OptimizerKind::Sgd)) {
    idle(fail, "optimizer.nesterov", o.nesterov, d.nesterov, why);
  } else if (o.nesterov && o.momentum == 0) {
    fail("optimizer.nesterov", "true has no effect without optimizer.momentum",
         "optimizer.momentum 0.9, or optimizer.nesterov false");
  }
  if (!adam) idle(fail, "optimizer.eps", o.eps, d.eps, why);
  if (!muon) {
    idle(fail, "optimizer.muon.momentum", o.muon.momentum, d.muon.momentum, why);
    idle(fail, "optimizer.muon.nesterov", o.muon.nesterov, d.muon.nesterov, why);
    idle(fail, "optimizer.muon.scale", o.muon.scale, d.muon.scale, why);
  } else if (o.muon.nesterov && o.muon.momentum == 0) {
    fail("optimizer.muon.nesterov", "true has no effect without optimizer.muon.momentum",
         "optimizer.muon.momentum 0.95, or optimizer.muon.nesterov false");
  }
  if (!o.uses(OptimizerKind::Adafactor)) {
    idle(fail, "optimizer.adafactor.decay", o.adafactor.decay, d.adafactor.decay, why);
    idle(fail, "optimizer.adafactor.eps1", o.adafactor.eps1, d.adafactor.eps1, why);
    idle(fail, "optimizer.adafactor.clip", o.adafactor.clip, d.adafactor.clip, why);
    idle(fail, "optimizer.adafactor.relative", o.adafactor.relative, d.adafactor.relative, why);
  }
  if (!o.uses(OptimizerKind::Adafactor) || !o.adafactor.relative)
    idle(fail, "optimizer.adafactor.eps2", o.adafactor.eps2, d.adafactor.eps2,
         o.uses(OptimizerKind::Adafactor) ? "with optimizer.adafactor.relative = false" : why);
  if (!o.uses(OptimizerKind::Lars)) idle(fail, "optimizer.trust", o.trust, d.trust, why);
  if (!adam && !o.uses(OptimizerKind::Lion) && o.betas != d.betas)
    fail("optimizer.betas", fmt::format("[{}, {}] has no effect {}", o.betas[0], o.betas[1], why),
         fmt::format("[{}, {}]", d.betas[0], d.betas[1]));
}

void block_size_is_a_power_of_two(const Recipe& r, const Fail& fail) {
  const Optimizer& o = r.optimizer;
  if (!o.uses(OptimizerKind::AdamW8bit))
    return idle(fail, "optimizer.block_size", o.block_size, kDefaultOptimizer.block_size,
                fmt::format("with optimizer.name = \"{}\"", name_of(o.kind)));
  const auto size = static_cast<uint64_t>(o.block_size);
  if (!std::has_single_bit(size))
    fail("optimizer.block_size", fmt::format("{} is not a power of two", o.block_size),
         fmt::format("{} or {}", std::bit_floor(size), std::bit_ceil(size)));
}

// Tensor-parallel ranks hold runs of consecutive elements of matrices that are cut along their last dim;
// other cuts, and models of the caller's own, are checked when the layout is compiled (layout/groups.cc).
void blocks_divide_rows(const Recipe& r, const Fail& fail) {
  const Optimizer& o = r.optimizer;
  if (!o.uses(OptimizerKind::AdamW8bit)) return;
  const Model& m = r.model;
  const auto check = [&](const char* key, int64_t ranks, const char* what, int64_t width, int64_t rows) {
    // Smaller matrices have no codes (optim/adamw8bit.cc).
    if (ranks <= 1 || width * rows < 16 * o.block_size || width % ranks != 0) return;
    if (width / ranks % o.block_size == 0) return;
    int64_t fewer = ranks - 1, smaller = o.block_size;
    while (fewer > 1 && (width % fewer != 0 || width / fewer % o.block_size != 0)) --fewer;
    while (smaller > 8 && width / ranks % smaller != 0) smaller /= 2;
    fail(key,
         fmt::format("{} gives each rank {} / {} = {} consecutive elements of {}, no multiple of "
                     "optimizer.block_size {}",
                     ranks, width, ranks, width / ranks, what, o.block_size),
         width / ranks % smaller == 0 ? fmt::format("{}, or optimizer.block_size {}", fewer, smaller)
                                      : fmt::format("{}", fewer));
  };
  const int64_t head = m.mla.kv_rank > 0 ? m.mla.v_dim : m.head_dim;
  check("parallel.tp", r.parallel.tp, "attention's output matrix", m.heads * head, m.embed);
  if (m.has_dense_block())
    check("parallel.tp", r.parallel.tp, "the feed-forward output matrix", m.ffn, m.embed);
  check("parallel.tp", r.parallel.tp, "the shared experts' output matrix", m.moe.shared_ffn, m.embed);
  if (m.moe.experts > 0)
    check("parallel.etp", r.parallel.etp, "the experts' output matrices", m.moe.ffn, m.moe.experts * m.embed);
}

void clip_needs_clip_norm(const Recipe& r, const Fail& fail) {
  if (r.optimizer.clip_norm == 0)
    idle(fail, "optimizer.clip", r.optimizer.clip, ClipKind::Norm, "with optimizer.clip_norm = 0");
}

void groups_are_complete(const Recipe& r, const Fail& fail) {
  const char* const key = "optimizer.groups";
  for (const ParamGroup& g : r.optimizer.groups) {
    const std::string which = fmt::format("group \"{}\"", g.match);
    if (g.match.empty())
      fail(key, "has a group without match, a pattern over parameter names",
           "match = \"*\" for all parameters");
    if (g.lr && !(*g.lr > 0 && std::isfinite(*g.lr)))
      fail(key, fmt::format("{}: lr must be above 0, got {}", which, *g.lr),
           "update = false, for parameters that stay as they are");
    if (g.weight_decay && !(*g.weight_decay >= 0 && std::isfinite(*g.weight_decay)))
      fail(key, fmt::format("{}: weight_decay must be at least 0, got {}", which, *g.weight_decay),
           "weight_decay = 0");
    if (!g.update && (g.kind || g.lr || g.weight_decay))
      fail(key, fmt::format("{}: name, lr and weight_decay have no effect with update = false", which),
           fmt::format("{{ match = \"{}\", update = false }}", g.match));
  }
}

std::vector<Rule> general_rules() {
  return {
      {"name is a valid file name", {"name"}, name_is_a_file_name},
      {"model.preset is a known preset", {"model.preset"}, preset_exists},
      {"data.tokenizer can be loaded", {"data.tokenizer"}, tokenizer_loads},
      {"data.path has no empty entries", {"data.path"}, paths_are_named},
      {"data.skip has no empty patterns", {"data.skip"}, skip_has_patterns},

      {"model.vocab covers the tokenizer", {"model.vocab", "data.tokenizer"}, vocab_covers_tokenizer},
      {"model.kv_heads divides model.heads", {"model.heads", "model.kv_heads"}, kv_heads_divide_heads},
      {"model.head_dim is even", {"model.family", "model.head_dim", "model.mla.kv_rank"}, head_dim_is_even},
      {"gpt2: model.embed = heads x head_dim",
       {"model.family", "model.embed", "model.heads", "model.head_dim"},
       gpt2_heads_make_embed},
      {"gpt2: model.kv_heads = model.heads",
       {"model.family", "model.heads", "model.kv_heads"},
       gpt2_has_no_gqa},
      {"llama keys are used only in family llama", {"model.family"}, llama_keys_only_for_llama},
      {"gpt2 keys are used only in family gpt2", {"model.family"}, gpt2_keys_only_for_gpt2},
      {"data.seq_len fits model.max_positions",
       {"model.family", "model.max_positions", "data.seq_len"},
       sequence_fits_positions},
      {"model.rope_theta is greater than 1", {"model.family", "model.rope_theta"}, rope_theta_is_above_one},
      {"model.rope_scaling keys match its kind", {"model.rope_scaling.kind"}, rope_scaling_keys_fit_kind},
      {"model.rope_scaling.original_positions is set",
       {"model.rope_scaling.kind", "model.rope_scaling.original_positions"},
       rope_scaling_knows_its_origin},
      {"model.rope_scaling limits are ordered",
       {"model.rope_scaling.kind", "model.rope_scaling.low_freq_factor",
        "model.rope_scaling.high_freq_factor", "model.rope_scaling.beta_fast",
        "model.rope_scaling.beta_slow"},
       rope_scaling_band_is_ordered},

      {"the number of ranks is within the limit",
       {"parallel.pp", "parallel.dp_replicate", "parallel.dp_shard", "parallel.cp", "parallel.tp"},
       world_is_in_reach},
      {"batch.global = micro x accumulation x dp",
       {"batch.global", "batch.micro", "batch.accumulation", "parallel.dp_replicate", "parallel.dp_shard"},
       batch_arithmetic},
      {"parallel.tp divides model.heads", {"parallel.tp", "model.heads"}, tp_divides_heads},
      {"parallel.tp divides model.kv_heads or is a multiple of it",
       {"parallel.tp", "model.kv_heads"},
       tp_fits_kv_heads},
      {"parallel.tp divides model.ffn",
       {"parallel.tp", "model.ffn", "model.moe.experts", "model.moe.first_dense", "model.moe.every"},
       tp_divides_ffn},
      {"parallel.sequence_parallel requires parallel.tp > 1",
       {"parallel.tp", "parallel.sequence_parallel"},
       sequence_parallel_needs_tp},
      {"parallel.tp divides the token rows",
       {"parallel.tp", "parallel.cp", "parallel.sequence_parallel", "batch.micro", "data.seq_len",
        "model.moe.experts"},
       token_rows_divide},
      {"parallel.zero requires ranks to shard over",
       {"parallel.zero", "parallel.dp_shard", "parallel.cp"},
       zero_needs_dp_shard},
      {"parallel.reshard_after_forward requires parallel.zero = 3",
       {"parallel.zero", "parallel.reshard_after_forward"},
       reshard_needs_zero_3},
      {"parallel.reshard_after_forward divides dp_shard x cp",
       {"parallel.zero", "parallel.reshard_after_forward", "parallel.dp_shard", "parallel.cp"},
       reshard_ranks_divide},
      {"parallel.prefetch requires parallel.zero > 0",
       {"parallel.zero", "parallel.prefetch"},
       prefetch_needs_zero},

      {"f64 is used for all precision keys or for none",
       {"precision.compute", "precision.master", "precision.moments", "precision.gradients",
        "precision.reduce"},
       f64_is_all_or_nothing},
      {"precision.master is at least f32", {"precision.compute", "precision.master"}, master_is_not_narrower},
      {"precision.master = \"split\" requires bf16 compute",
       {"precision.compute", "precision.master"},
       split_masters_need_bf16_compute},
      {"precision.gradients = \"bf16\" requires bf16 compute",
       {"precision.compute", "precision.gradients"},
       bf16_gradients_need_bf16_compute},

      {"precision.moments_rounding = \"stochastic\" requires bf16 moments",
       {"precision.moments", "precision.moments_rounding", "optimizer.name"},
       stochastic_rounding_needs_bf16_moments},
      {"f16 is allowed only for precision.compute",
       {"precision.compute", "precision.moments", "precision.gradients", "precision.reduce"},
       f16_is_only_for_compute},
      {"precision.tf32 requires f32 compute on a GPU",
       {"precision.compute", "precision.tf32", "run.device"},
       tf32_needs_f32_on_a_gpu},
      {"precision.loss_scale_window requires precision.loss_scale = \"dynamic\"",
       {"precision.loss_scale", "precision.loss_scale_window"},
       loss_scale_window_needs_dynamic},

      {"parallel.schedule is a known schedule", {"parallel.pp", "parallel.schedule"}, schedule_is_known},
      {"parallel.chunks matches parallel.schedule",
       {"parallel.pp", "parallel.schedule", "parallel.chunks", "batch.accumulation"},
       chunks_fit_schedule},
      {"pipeline stages fit model.layers",
       {"parallel.pp", "parallel.chunks", "parallel.stages", "model.layers"},
       stages_fit_layers},
      {"memory keys match memory.recompute",
       {"memory.recompute", "memory.recompute_ops", "memory.recompute_every", "memory.budget",
        "model.layers"},
       recompute_keys_fit_kind},
      {"memory.recompute_ops are known op classes", {"memory.recompute_ops"}, recompute_ops_are_known},

      {"optimizer keys match optimizer.name",
       {"optimizer.name", "optimizer.groups"},
       optimizer_keys_fit_name},
      {"optimizer.clip requires optimizer.clip_norm",
       {"optimizer.clip", "optimizer.clip_norm"},
       clip_needs_clip_norm},
      {"optimizer.groups have a pattern and settings in range", {"optimizer.groups"}, groups_are_complete},
      {"optimizer.block_size is a power of two and belongs to adamw8bit",
       {"optimizer.name", "optimizer.block_size"},
       block_size_is_a_power_of_two},
      {"adamw8bit: optimizer.block_size divides what a rank holds of a row",
       {"optimizer.name", "optimizer.block_size", "parallel.tp", "parallel.etp", "model.heads",
        "model.head_dim", "model.ffn", "model.moe.ffn", "model.moe.shared_ffn"},
       blocks_divide_rows},

  };
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> kRules = [] {
    std::vector<Rule> all = general_rules();
    for (const std::vector<Rule>& more :
         {block_rules(), expert_rules(), latent_attention_rules(), mesh_rules(), quantised_rules(),
          training_rules(), data_rules(), size_rules()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return kRules;
}

}  // namespace

void check_rules(const Recipe& recipe, Report& report) {
  // Decided before any rule runs, so that two rules that reject the same key are both reported.
  std::vector<const Rule*> ready;
  for (const Rule& rule : rules())
    if (std::all_of(rule.keys.begin(), rule.keys.end(), [&](const char* key) { return report.usable(key); }))
      ready.push_back(&rule);
  for (const Rule* rule : ready) rule->check(recipe, Fail{*rule, report});
}

std::vector<std::string> rule_names() {
  std::vector<std::string> names;
  for (const Rule& rule : rules()) names.emplace_back(rule.name);
  return names;
}

std::span<const std::string_view> recompute_classes() {
  static constexpr std::array<std::string_view, 8> kClasses = {
      "norm", "activation", "rope", "bias", "dropout", "residual", "linear", "attention"};
  return kClasses;
}

}  // namespace quintet::config
