#include "config/resolve.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "config/axis_order.h"
#include "config/batch_ramp.h"
#include "config/context_parallel.h"
#include "config/key_docs.h"
#include "config/length.h"
#include "config/names.h"
#include "config/nearest.h"
#include "config/schema.h"
#include "config/tokenizer_size.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

void fill_in_model(Model& m, const std::string& tokenizer, Report& report) {
  if (m.vocab == 0) {
    m.vocab = ids_needed(tokenizer, m.family);
    if (m.vocab == 0) report.spoil("model.vocab");  // the tokenizer's own rule says why
  }
  if (m.kv_heads == 0) {
    m.kv_heads = m.heads;
    if (m.heads <= 0) report.spoil("model.kv_heads");
  }
  if (m.head_dim == 0 && m.mla.kv_rank > 0) {
    m.head_dim = m.mla.nope_dim + m.mla.rope_dim;
    if (m.mla.nope_dim <= 0 || m.mla.rope_dim <= 0) report.spoil("model.head_dim");
  }
  if (m.head_dim == 0 && m.mla.kv_rank == 0) {
    if (m.heads <= 0 || m.embed <= 0 || !report.usable("model.heads") || !report.usable("model.embed"))
      report.spoil("model.head_dim");
    else if (m.embed % m.heads != 0)
      report.add(
          "model.head_dim = model.embed / model.heads", "model.head_dim",
          fmt::format("is not set, and model.embed {} is not a multiple of model.heads {}", m.embed, m.heads),
          fmt::format("model.embed {}, or an explicit model.head_dim", nearest_multiples(m.heads, m.embed)));
    else
      m.head_dim = m.embed / m.heads;
  }
  if (m.family == Family::Bert && m.token_types == 0) m.token_types = 2;
  if ((has_learned_positions(m.family) || m.family == Family::Neox) && m.ffn == 0) {
    if (count_from(1).contains(static_cast<double>(m.embed)))
      m.ffn = 4 * m.embed;
    else
      report.spoil("model.ffn");
  }
  if (m.moe.experts > 0) {
    if (m.moe.ffn == 0) m.moe.ffn = m.ffn / std::max<int64_t>(1, m.moe.upcycle_slices);
    const bool sliced = m.moe.upcycle && m.moe.upcycle_slices > 1;
    if ((m.ffn == 0 || sliced) && !m.has_dense_block()) m.ffn = m.moe.ffn;
  }
  if ((m.family == Family::Llama || m.family == Family::Neox) && m.rope_theta == 0) m.rope_theta = 10000;
  RopeScaling& s = m.rope_scaling;
  if (s.kind == RopeScalingKind::Yarn && s.attention_factor == 0 && s.factor >= 1)
    s.attention_factor = 0.1 * std::log(s.factor) + 1;
  if (s.kind == RopeScalingKind::Longrope) {
    if (s.attention_factor == 0 && s.factor >= 1 && s.original_positions > 1)
      s.attention_factor =
          std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_positions)));
  }
}

// Keys that describe built-in families do not apply to a model supplied by a program: limits and rules skip
// them.
void fill_in_custom(Recipe& r, Report& report) {
  for_each_key(std::as_const(r), [&](const char* key, const auto&...) {
    if (std::string_view(key).starts_with("model.") && std::string_view(key) != "model.family")
      report.spoil(key);
  });
  r.model.vocab = base::demanded(r.model.demands, base::Dim::Vocab);
}

// Derives missing sizes, rounding down where the division is not exact: the rule on batch.global then reports
// all the numbers. With two or three missing, accumulation becomes 1 first.
void fill_in_batch(Batch& b, const Parallel& p, Report& report) {
  const auto within = [](const Limits& limits, int64_t v) { return limits.contains(static_cast<double>(v)); };
  const Limits known = count_from(0);
  if (!within(kAxis, p.dp_replicate) || !within(kAxis, p.dp_shard) || !within(known, b.global) ||
      !within(known, b.micro) || !within(known, b.accumulation)) {
    if (b.global == 0) report.spoil("batch.global");
    if (b.micro == 0) report.spoil("batch.micro");
    if (b.accumulation == 0) report.spoil("batch.accumulation");
    return;
  }
  const int64_t dp = p.dp();
  const auto rest = [&](int64_t other) { return std::max<int64_t>(1, b.global / (other * dp)); };
  if (b.global > 0) {
    if (b.micro == 0 && b.accumulation == 0) b.accumulation = 1;
    if (b.accumulation == 0) b.accumulation = rest(b.micro);
    if (b.micro == 0) b.micro = rest(b.accumulation);
  } else {
    if (b.micro == 0) b.micro = 1;
    if (b.accumulation == 0) b.accumulation = 1;
    if (__builtin_mul_overflow(b.micro * dp, b.accumulation, &b.global))
      b.global = std::numeric_limits<int64_t>::max();  // exceeds the limit of the key and is reported as such
  }
}

void fill_in_pipeline(Parallel& p) {
  if (p.pp > 1 && p.schedule.empty()) p.schedule = "1f1b";
  if (p.chunks == 0) p.chunks = p.pp > 1 && traits_of(p.schedule).two_chunks() ? 2 : 1;
}

// A set is named after the last part of its first path, without its extension.
template <class Set>
void fill_in_names(std::vector<Set>& sets) {
  for (Set& set : sets) {
    if (!set.name.empty() || set.path.empty()) continue;
    std::filesystem::path path(set.path[0]);
    if (!path.has_filename()) path = path.parent_path();
    set.name = path.stem().string();
  }
}

// Leaves cp_method unset where a rule will reject the sizes it depends on.
void fill_in_context(Parallel& p, const Model& m, const Data& data) {
  if (p.cp <= 1) return;
  if (m.family == Family::Custom) {
    if (p.cp_method == ContextMethod::Auto) p.cp_method = choose_context_method(p, m, data);
    return;
  }
  const auto within = [](const Limits& limits, int64_t v) { return limits.contains(static_cast<double>(v)); };
  for (const int64_t n : {m.heads, m.kv_heads, m.head_dim, data.seq_len})
    if (!within(count_from(1), n)) return;
  if (!within(kAxis, p.cp) || !within(kAxis, p.tp) || m.heads % p.tp != 0) return;
  if (p.cp_method == ContextMethod::Auto) p.cp_method = choose_context_method(p, m, data);
  const bool both =
      p.cp_method == ContextMethod::UlyssesRing || windowed_method(p) == ContextMethod::UlyssesRing;
  if (both && p.ulysses == 0) p.ulysses = largest_ulysses(p, m);
}

bool is_sound(const Length& length) {
  return length.value >= 0 && length.value <= kMaxSeed &&
         (length.unit == Length::Unit::Fraction ? length.value <= 1
                                                : length.value == std::floor(length.value));
}

// Fractions become steps: at least one, unless they are 0.
void count_in_steps(Length& length, int64_t steps) {
  if (length.unit != Length::Unit::Fraction || !is_sound(length)) return;
  const double count = std::round(length.value * static_cast<double>(steps));
  length = {Length::Unit::Steps, length.value > 0 ? std::max(1.0, count) : 0.0};
}

void fill_in_schedule(Recipe& r) {
  Schedule& s = r.optimizer.schedule;
  const auto within = [](int64_t v) { return count_from(1).contains(static_cast<double>(v)); };
  if (!within(r.run.steps)) return;
  for (Length* const length : {&s.warmup, &s.decay}) count_in_steps(*length, r.run.steps);
  for (BatchStage& stage : r.batch.ramp) count_in_steps(stage.until, r.run.steps);
  if (s.decay.value != 0 || !is_sound(s.warmup)) return;
  if (s.kind == ScheduleKind::Wsd)
    s.decay = {Length::Unit::Steps, static_cast<double>(std::max<int64_t>(1, r.run.steps / 10))};
  if (s.kind != ScheduleKind::Linear && s.kind != ScheduleKind::Cosine) return;
  for (const int64_t v : {r.data.seq_len, r.batch.global, r.batch.micro, r.parallel.dp()})
    if (!within(v)) return;
  for (const BatchStage& stage : r.batch.ramp)
    if (!within(stage.global) || !is_sound(stage.until)) return;
  const double rest = BatchRamp(r).end().in(s.warmup.unit) - s.warmup.value;
  s.decay = {s.warmup.unit, std::max(1.0, rest)};
}

struct LimitChecker {
  const Given& given;
  Keys which;
  Report& report;

  void check(const std::string& key, double value, const Limits& limits, bool integer) {
    check(key, value, limits, integer, fmt::format("{}", value));
  }
  // Integers are shown as they were given: 2^63 - 1 is no double.
  void check(const std::string& key, int64_t value, const Limits& limits) {
    check(key, static_cast<double>(value), limits, true, fmt::format("{}", value));
  }
  void check(const std::string& key, double value, const Limits& limits, bool integer,
             const std::string& seen) {
    if (!report.usable(key) || limits.contains(value)) return;
    if (which == Keys::Given && !given(key)) return;
    if (value == 0 && !given(key)) {
      report.add("numbers are within limits", key, "is required; it must be " + text_of(limits, integer));
      return;
    }
    report.add("numbers are within limits", key,
               fmt::format("must be {}, got {}", text_of(limits, integer), seen),
               nearest_in(key, limits, value, integer));
  }

  void operator()(const char* key, const int64_t& value, const Limits& limits) { check(key, value, limits); }
  void operator()(const char* key, const double& value, const Limits& limits) {
    check(key, value, limits, false);
  }
  void operator()(const char* key, const std::vector<int64_t>& values, const Limits& limits) {
    for (const int64_t value : values) check(key, value, limits);
  }
  void operator()(const char* key, const std::vector<double>& values, const Limits& limits) {
    for (const double value : values) check(key, value, limits, false);
  }
  void operator()(const char* key, const std::array<double, 2>& values, const Limits& limits) {
    for (const double value : values) check(key, value, limits, false);
  }
  void operator()(const char* key, const Length& value) {
    if (report.usable(key) && !is_sound(value))
      report.add("numbers are within limits", key,
                 fmt::format("must be {}, got {}", kLengthWords, length_text(value)));
  }
  void operator()(const char* key, const std::vector<BatchStage>& stages) {
    for (const BatchStage& stage : stages) {
      (*this)(key, stage.until);
      check(key, stage.global, count_from(1));
    }
  }
  template <class E>
  requires std::is_enum_v<E>
  void operator()(const char* key, const E& value) {
    if (report.usable(key) && name_of(value).empty())
      report.add("numbers are within limits", key,
                 fmt::format("has no value number {}", static_cast<int>(value)));
  }
  template <class T>
  void operator()(const char*, const T&) {}

  static std::string text_of(const Limits& limits, bool integer) {
    std::string text = integer ? "an integer" : "a finite number";
    text += fmt::format("{} {}", limits.open_min ? " above" : " of at least", limits.min);
    if (limits.max == kUnbounded) return text;
    return text + fmt::format("{} {}", limits.open_max ? " and below" : " and at most", limits.max);
  }
  // Where no number is nearest, the one that the documentation gives as an example.
  static std::string nearest_in(const std::string& key, const Limits& limits, double value, bool integer) {
    if (!std::isfinite(value) || (value <= limits.min && limits.open_min) ||
        (value >= limits.max && limits.open_max)) {
      const KeyFacts* facts = find_key(key);
      return facts == nullptr ? std::string() : facts->example;
    }
    if (integer) return fmt::format("{}", static_cast<int64_t>(std::clamp(value, limits.min, limits.max)));
    return fmt::format("{}", std::clamp(value, limits.min, limits.max));
  }
};

}  // namespace

void fill_in(Recipe& r, Report& report) {
  if (r.model.family == Family::Custom)
    fill_in_custom(r, report);
  else
    fill_in_model(r.model, r.data.tokenizer, report);
  if (r.model.family == Family::Bert && r.data.mlm.rate == 0) r.data.mlm.rate = 0.15;
  RopeScaling& rope = r.model.rope_scaling;
  if (rope.kind == RopeScalingKind::Longrope && rope.positions == 0) rope.positions = r.data.seq_len;
  fill_in_batch(r.batch, r.parallel, report);
  fill_in_order(r.parallel, report);
  fill_in_pipeline(r.parallel);
  fill_in_context(r.parallel, r.model, r.data);
  fill_in_names(r.data.blend);
  fill_in_names(r.eval.sets);
  if (LrScaling& s = r.optimizer.lr_scaling; s.rule != LrScalingRule::None && s.batch == 0)
    s.batch = std::max<int64_t>(1, r.batch.global);
  if (r.run.noise_scale_every > 0 && r.run.noise_scale_batch == 0)
    r.run.noise_scale_batch = std::max<int64_t>(1, r.batch.micro * r.parallel.dp());
  fill_in_schedule(r);
  const Parallel& p = r.parallel;
  const bool alone = p.dp_replicate == 1 && p.dp_shard == 1 && p.cp == 1 && p.tp == 1 && p.pp == 1;
  if (alone) r.checkpoint.peer_every = 0;  // no other rank's memory
  if (r.run.dir.empty()) r.run.dir = "runs/" + r.name;
}

void check_limits(const Recipe& recipe, const Given& given, Keys which, Report& report) {
  for_each_key(recipe, LimitChecker{given, which, report});
}

}  // namespace quintet::config
