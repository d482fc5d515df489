#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quintet::optim {

double learning_rate(const config::Optimizer& o, int64_t step, int64_t steps) {
  using config::ScheduleKind;
  const config::Schedule& s = o.schedule;
  if (step < s.warmup) return o.lr * static_cast<double>(step + 1) / static_cast<double>(s.warmup);
  const double floor = s.min_lr_ratio;
  const double decay = static_cast<double>(std::max<int64_t>(s.decay, 1));
  const auto progress = [&](int64_t begin) {
    return std::clamp(static_cast<double>(step - begin) / decay, 0.0, 1.0);
  };
  double factor = 1;
  switch (s.kind) {
    case ScheduleKind::Constant:
      break;
    case ScheduleKind::Linear:
      factor = floor + (1 - floor) * (1 - progress(s.warmup));
      break;
    case ScheduleKind::Cosine:
      factor = floor + (1 - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress(s.warmup)));
      break;
    case ScheduleKind::InverseSqrt: {
      // Continuous with the warm-up's end: sqrt(w / s) from s = w on.
      const double w = static_cast<double>(std::max<int64_t>(s.warmup, 1));
      factor = std::max(floor, std::sqrt(w / std::max(w, static_cast<double>(step + 1))));
      break;
    }
    case ScheduleKind::Wsd:
      factor = floor + (1 - floor) * (1 - progress(steps - s.decay));
      break;
  }
  return o.lr * factor;
}

}  // namespace quintet::optim
