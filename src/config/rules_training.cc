// Rules on what changes over a run: learning rate, weight decay, batch size, guards.
#include "config/batch_ramp.h"
#include "config/length.h"
#include "config/names.h"
#include "config/nearest.h"
#include "config/rule.h"
#include "config/schedule_traits.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

void schedule_keys_fit_kind(const Recipe& r, const Fail& fail) {
  const Schedule& s = r.optimizer.schedule;
  const std::string why = fmt::format("with optimizer.schedule.kind = \"{}\"", name_of(s.kind));
  if (s.kind == ScheduleKind::Constant || s.kind == ScheduleKind::InverseSqrt)
    if (s.decay.value != 0)
      fail("optimizer.schedule.decay", fmt::format("{} has no effect {}", length_text(s.decay), why), "0");
  if (s.kind == ScheduleKind::Constant)
    idle(fail, "optimizer.schedule.min_lr_ratio", s.min_lr_ratio, 0.0, why);
  if (s.kind != ScheduleKind::Wsd) idle(fail, "optimizer.schedule.shape", s.shape, DecayShape::Linear, why);
}

void phases_have_one_unit(const Recipe& r, const Fail& fail) {
  const Schedule& s = r.optimizer.schedule;
  if (s.kind != ScheduleKind::Linear && s.kind != ScheduleKind::Cosine) return;
  if (s.warmup.value == 0 || s.warmup.unit == s.decay.unit) return;
  fail("optimizer.schedule.decay",
       fmt::format("{} begins after a warm-up of {}: both must have the same unit", length_text(s.decay),
                   length_text(s.warmup)),
       "leave it out: decay until the end of the run");
}

void weight_decay_ramp_ramps(const Recipe& r, const Fail& fail) {
  const WeightDecayRamp& ramp = r.optimizer.weight_decay_ramp;
  if (ramp.kind == RampKind::Constant) {
    const std::string why = "with optimizer.weight_decay_ramp.kind = \"constant\"";
    idle(fail, "optimizer.weight_decay_ramp.start_ratio", ramp.start_ratio, 1.0, why);
    idle(fail, "optimizer.weight_decay_ramp.final_ratio", ramp.final_ratio, 1.0, why);
  } else if (ramp.start_ratio == ramp.final_ratio) {
    fail("optimizer.weight_decay_ramp.kind",
         fmt::format("\"{}\" has no effect: start_ratio and final_ratio are both {}", name_of(ramp.kind),
                     ramp.start_ratio),
         "\"constant\", or optimizer.weight_decay_ramp.final_ratio 0");
  } else if (r.optimizer.weight_decay == 0) {
    fail("optimizer.weight_decay_ramp.kind",
         fmt::format("\"{}\" has no effect with optimizer.weight_decay = 0, which it multiplies",
                     name_of(ramp.kind)),
         "\"constant\", or optimizer.weight_decay 0.1");
  }
}

void inverse_sqrt_needs_warmup(const Recipe& r, const Fail& fail) {
  const Schedule& s = r.optimizer.schedule;
  if (s.kind == ScheduleKind::InverseSqrt && s.warmup.value == 0)
    fail("optimizer.schedule.warmup",
         "must be at least 1 step with kind = \"inverse_sqrt\": lr decreases as sqrt(warmup / step)", "1");
}

void wsd_phases_fit(const Recipe& r, const Fail& fail) {
  const Schedule& s = r.optimizer.schedule;
  if (s.kind != ScheduleKind::Wsd) return;
  const BatchRamp ramp(r);
  const double rest = ramp.end().in(s.decay.unit) - s.decay.value;
  const int64_t warm = ramp.steps_until(s.warmup),
                stable = rest < 0 ? -1 : ramp.steps_until({s.decay.unit, rest});
  if (warm <= stable) return;
  fail("optimizer.schedule.decay",
       fmt::format("a warm-up of {} and a decay of {} do not fit into run.steps {}", length_text(s.warmup),
                   length_text(s.decay), r.run.steps),
       warm < r.run.steps ? fmt::format("{}", r.run.steps - warm)
                          : fmt::format("a shorter warm-up: it takes {} steps", warm));
}

void failure_rate_has_a_use(const Recipe& r, const Fail& fail) {
  if (r.checkpoint.every.unit != SaveInterval::Unit::Auto)
    idle(fail, "checkpoint.failures", r.checkpoint.failures, Checkpoint().failures,
         "unless checkpoint.every = \"auto\"");
}

// ---- batch.ramp

void ramp_grows(const Recipe& r, const Fail& fail) {
  const std::vector<BatchStage>& stages = r.batch.ramp;
  if (stages.empty()) return;
  const std::vector<BatchRamp::Stage> ramp = BatchRamp(r).stages();
  for (size_t i = 0; i < stages.size(); ++i) {
    const int64_t next = i + 1 < stages.size() ? stages[i + 1].global : r.batch.global;
    const std::string after = i + 1 < stages.size() ? fmt::format("stage {}", i + 2) : "batch.global";
    if (stages[i].global >= next)
      return fail("batch.ramp",
                  fmt::format("stage {} has {} sequences, {} has {}: stages must grow", i + 1,
                              stages[i].global, after, next),
                  fmt::format("global = {} or less in stage {}", next - 1, i + 1));
    if (ramp[i + 1].first_step == ramp[i].first_step)
      return fail("batch.ramp",
                  fmt::format("stage {} ends at {}, before its first step: {} sequences are consumed by then",
                              i + 1, length_text(stages[i].until), ramp[i].first_sequence),
                  fmt::format("until = \"{} sequences\" or later in stage {}",
                              ramp[i].first_sequence + stages[i].global, i + 1));
  }
}

void lr_scaling_scales(const Recipe& r, const Fail& fail) {
  const LrScaling& s = r.optimizer.lr_scaling;
  if (s.rule == LrScalingRule::None)
    return idle(fail, "optimizer.lr_scaling.batch", s.batch, int64_t{0},
                "with optimizer.lr_scaling.rule = \"none\"");
  if (s.batch == r.batch.global && r.batch.ramp.empty())
    fail("optimizer.lr_scaling.rule",
         fmt::format("\"{}\" has no effect: every step has {} sequences, which optimizer.lr is for",
                     name_of(s.rule), s.batch),
         "\"none\", a batch.ramp, or as optimizer.lr_scaling.batch the batch that optimizer.lr was chosen "
         "for");
}

void ramp_divides(const Recipe& r, const Fail& fail) {
  const int64_t unit = r.batch.micro * r.parallel.dp();
  for (const BatchStage& stage : r.batch.ramp)
    if (stage.global % unit != 0)
      fail("batch.ramp",
           fmt::format("{} is not a multiple of micro {} x dp {} = {}", stage.global, r.batch.micro,
                       r.parallel.dp(), unit),
           nearest_multiples(unit, stage.global));
}

// Other lists of micro-batches need other schedules.
void steps_have_variants(const Recipe& r, const Fail& fail) {
  const bool noise = r.run.noise_scale_every > 0;
  if (r.batch.ramp.empty() && !noise) return;
  const char* const key = noise ? "run.noise_scale_every" : "batch.ramp";
  const char* const neutral = noise ? "0" : "[]";
  const Parallel& p = r.parallel;
  if (p.pp > 1 && schedule_file(p.schedule))
    fail(key, fmt::format("needs steps of several sizes, and \"{}\" is a schedule of one", p.schedule),
         fmt::format("{}, or a named schedule", neutral));
}

// ---- guards and measurements

void skip_spike_has_a_window(const Recipe& r, const Fail& fail) {
  const SkipSpike& s = r.run.skip_spike;
  if (s.window == 0) idle(fail, "run.skip_spike.factor", s.factor, 6.0, "with run.skip_spike.window = 0");
  if (s.window == 1)
    fail("run.skip_spike.window", "1 has no deviation: every larger loss would be a spike", "128");
}

void noise_has_a_small_batch(const Recipe& r, const Fail& fail) {
  const Run& run = r.run;
  if (run.noise_scale_every == 0)
    return idle(fail, "run.noise_scale_batch", run.noise_scale_batch, int64_t{0},
                "with run.noise_scale_every = 0");
  if (r.optimizer.clip != ClipKind::Norm)
    fail("run.noise_scale_every",
         fmt::format("{} requires optimizer.clip = \"norm\": it compares Euclidean norms",
                     run.noise_scale_every),
         "0, or optimizer.clip \"norm\"");
  const int64_t unit = r.batch.micro * r.parallel.dp();
  if (run.noise_scale_batch % unit != 0)
    fail("run.noise_scale_batch",
         fmt::format("{} is not a multiple of micro {} x dp {} = {}", run.noise_scale_batch, r.batch.micro,
                     r.parallel.dp(), unit),
         nearest_multiples(unit, run.noise_scale_batch));
  else if (run.noise_scale_batch >= r.batch.global)
    fail(
        "run.noise_scale_batch",
        fmt::format("{} sequences are not fewer than batch.global {}: the estimate compares two batch sizes",
                    run.noise_scale_batch, r.batch.global),
        unit < r.batch.global ? fmt::format("{}", unit) : fmt::format("batch.global {}", 2 * r.batch.global));
}

}  // namespace

std::vector<Rule> training_rules() {
  return {
      {"optimizer.schedule keys match its kind", {"optimizer.schedule.kind"}, schedule_keys_fit_kind},
      {"inverse_sqrt requires optimizer.schedule.warmup",
       {"optimizer.schedule.kind", "optimizer.schedule.warmup"},
       inverse_sqrt_needs_warmup},
      {"linear and cosine: optimizer.schedule.warmup and decay have one unit",
       {"optimizer.schedule.kind", "optimizer.schedule.warmup", "optimizer.schedule.decay"},
       phases_have_one_unit},
      {"wsd phases fit run.steps",
       {"optimizer.schedule.kind", "optimizer.schedule.warmup", "optimizer.schedule.decay", "run.steps",
        "batch.global", "batch.micro", "batch.ramp", "data.seq_len", "parallel.dp_replicate",
        "parallel.dp_shard"},
       wsd_phases_fit},
      {"optimizer.weight_decay_ramp has an effect",
       {"optimizer.weight_decay", "optimizer.weight_decay_ramp.kind",
        "optimizer.weight_decay_ramp.start_ratio", "optimizer.weight_decay_ramp.final_ratio"},
       weight_decay_ramp_ramps},
      {"optimizer.lr_scaling has an effect",
       {"optimizer.lr_scaling.rule", "optimizer.lr_scaling.batch", "batch.global", "batch.ramp"},
       lr_scaling_scales},
      {"checkpoint.failures has an effect",
       {"checkpoint.every", "checkpoint.failures"},
       failure_rate_has_a_use},
      {"batch.ramp grows to batch.global",
       {"batch.ramp", "batch.global", "batch.micro", "data.seq_len", "run.steps", "parallel.dp_replicate",
        "parallel.dp_shard"},
       ramp_grows},
      {"batch.ramp has multiples of micro x dp",
       {"batch.ramp", "batch.micro", "parallel.dp_replicate", "parallel.dp_shard"},
       ramp_divides},
      {"steps of several sizes can be compiled",
       {"batch.ramp", "batch.global", "batch.micro", "data.seq_len", "run.steps", "run.noise_scale_every",
        "run.noise_scale_batch", "parallel.pp", "parallel.schedule", "parallel.dp_replicate",
        "parallel.dp_shard"},
       steps_have_variants},
      {"run.skip_spike has an effect",
       {"run.skip_spike.window", "run.skip_spike.factor"},
       skip_spike_has_a_window},
      {"run.noise_scale_batch is a smaller batch",
       {"run.noise_scale_every", "run.noise_scale_batch", "batch.global", "batch.micro",
        "parallel.dp_replicate", "parallel.dp_shard"},
       noise_has_a_small_batch},
  };
}

}  // namespace quintet::config
