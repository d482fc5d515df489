// Rules on what changes over a run: learning rate, weight decay, batch size, guards.
#include "config/batch_ramp.h"
#include "config/length.h"
#include "config/names.h"
#include "config/rule.h"

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

// Keys whose feature is not built yet.
void keys_are_built(const Recipe& r, const Fail& fail) {
  if (!r.batch.ramp.empty()) fail("batch.ramp", "is not supported yet", "[]");
  if (r.run.skip_spike.window != 0) fail("run.skip_spike.window", "is not supported yet", "0");
  if (r.run.noise_scale_every != 0) fail("run.noise_scale_every", "is not supported yet", "0");
  if (r.optimizer.weight_decay_ramp.kind != RampKind::Constant)
    fail("optimizer.weight_decay_ramp.kind", "is not supported yet", "\"constant\"");
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
      {"keys of this section are supported", {}, keys_are_built},
  };
}

}  // namespace quintet::config
