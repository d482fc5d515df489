#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quintet::optim {
namespace {

using config::DecayShape;
using config::RunPoint;

// From 1 at p = 0 to 0 at p = 1.
double shaped(DecayShape shape, double p) {
  switch (shape) {
    case DecayShape::Linear:
      return 1 - p;
    case DecayShape::Cosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * p));
    case DecayShape::Exponential:
      return 2 * std::exp2(-p) - 1;
    case DecayShape::OneMinusSqrt:
      return 1 - std::sqrt(p);
  }
  return 0;
}

}  // namespace

double learning_rate(const config::Optimizer& o, const RunPoint& done, const RunPoint& end) {
  using config::ScheduleKind;
  const config::Schedule& s = o.schedule;
  const double floor = s.min_lr_ratio, warmup = s.warmup.value, passed = done.in(s.warmup.unit);
  if (passed < warmup) return o.lr * passed / warmup;
  const double decay = std::max(s.decay.value, 1.0), now = done.in(s.decay.unit);
  const auto decayed = [&](double begin, DecayShape shape) {
    return floor + (1 - floor) * shaped(shape, std::clamp((now - begin) / decay, 0.0, 1.0));
  };
  double factor = 1;
  switch (s.kind) {
    case ScheduleKind::Constant:
      break;
    case ScheduleKind::Linear:
      factor = decayed(warmup, DecayShape::Linear);
      break;
    case ScheduleKind::Cosine:
      factor = decayed(warmup, DecayShape::Cosine);
      break;
    case ScheduleKind::InverseSqrt:
      factor = std::max(floor, std::sqrt(warmup / passed));
      break;
    case ScheduleKind::Wsd:
      factor = decayed(end.in(s.decay.unit) - decay, s.shape);
      break;
  }
  return o.lr * factor;
}

double batch_factor(const config::LrScaling& scaling, int64_t sequences) {
  const double ratio = static_cast<double>(sequences) / static_cast<double>(scaling.batch);
  switch (scaling.rule) {
    case config::LrScalingRule::None:
      return 1;
    case config::LrScalingRule::Linear:
      return ratio;
    case config::LrScalingRule::Sqrt:
      return std::sqrt(ratio);
  }
  return 1;
}

double weight_decay_ratio(const config::Optimizer& o, const RunPoint& done, const RunPoint& end) {
  const config::WeightDecayRamp& ramp = o.weight_decay_ramp;
  const double p = std::clamp(static_cast<double>(done.steps) / static_cast<double>(end.steps), 0.0, 1.0);
  switch (ramp.kind) {
    case config::RampKind::Constant:
      return 1;
    case config::RampKind::Linear:
      return ramp.start_ratio + (ramp.final_ratio - ramp.start_ratio) * p;
    case config::RampKind::Cosine:
      return ramp.start_ratio +
             (ramp.final_ratio - ramp.start_ratio) * 0.5 * (1 - std::cos(std::numbers::pi * p));
  }
  return 1;
}

}  // namespace quintet::optim
