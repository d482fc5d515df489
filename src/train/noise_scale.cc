#include "train/noise_scale.h"

#include <cmath>

namespace quintet::train {
namespace {
constexpr double kKept = 0.9;  // of the weight of earlier estimates
}

void NoiseScale::add(const GradientNorm& small, const GradientNorm& large) {
  const auto b = static_cast<double>(small.tokens), B = static_cast<double>(large.tokens);
  if (small.tokens <= 0 || small.tokens >= large.tokens) return;
  if (!std::isfinite(small.squared) || !std::isfinite(large.squared)) return;
  squared_ = kKept * squared_ + (1 - kKept) * (B * large.squared - b * small.squared) / (B - b);
  variance_ = kKept * variance_ + (1 - kKept) * (small.squared - large.squared) / (1 / b - 1 / B);
  weight_ = kKept * weight_ + (1 - kKept);
  ++estimates_;
}

}  // namespace quintet::train
