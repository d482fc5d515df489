#include "models/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace quintet::models {
namespace {

constexpr double kTurn = 2.0 * std::numbers::pi;

// Llama 3: pairs with many rotations within the original context keep their frequency, pairs with few are
// slowed down by `factor`, and the frequency is interpolated linearly in between.
double llama3(double freq, const config::RopeScaling& s) {
  const double turns = static_cast<double>(s.original_positions) * freq / kTurn;
  if (turns < s.low_freq_factor) return freq / s.factor;
  if (turns > s.high_freq_factor || s.low_freq_factor == s.high_freq_factor) return freq;  // Llama 4: no band
  const double keep = (turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1.0 - keep) * freq / s.factor + keep * freq;
}

// YaRN: the same, but linear in the pair index, between the pairs with beta_fast and beta_slow rotations.
void yarn(std::vector<double>& freqs, double theta, int64_t head_dim, const config::RopeScaling& s) {
  const double dim = static_cast<double>(head_dim);
  const auto pair_that_turns = [&](double times) {
    return dim * std::log(static_cast<double>(s.original_positions) / (times * kTurn)) /
           (2.0 * std::log(theta));
  };
  double first = pair_that_turns(s.beta_fast), last = pair_that_turns(s.beta_slow);
  if (s.truncate) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0), last = std::min(last, dim - 1.0);
  if (first == last) last += 0.001;  // a step instead of a ramp
  for (size_t i = 0; i < freqs.size(); ++i) {
    const double slow = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    freqs[i] = freqs[i] / s.factor * slow + freqs[i] * (1.0 - slow);
  }
}

double longrope_scale(const config::RopeScaling& s) {
  if (s.attention_factor > 0) return s.attention_factor;
  return s.factor <= 1
             ? 1.0
             : std::sqrt(1.0 + std::log(s.factor) / std::log(static_cast<double>(s.original_positions)));
}

double yarn_scale(const config::RopeScaling& s) {
  if (s.attention_factor > 0) return s.attention_factor;
  return s.factor <= 1 ? 1.0 : 0.1 * std::log(s.factor) + 1.0;
}

}  // namespace

RopeFrequencies rope_frequencies(double theta, int64_t head_dim, const config::RopeScaling& scaling) {
  if (!(theta > 1)) base::fail_user("model.rope_theta must be greater than 1, got {}", theta);
  if (head_dim <= 0 || head_dim % 2 != 0)
    base::fail_user(
        "rotary positions rotate pairs of features: model.head_dim must be even, got {}; nearest: {}",
        head_dim, head_dim + 1);
  RopeFrequencies rope;
  for (int64_t i = 0; i < head_dim; i += 2)
    rope.inv_freq.push_back(1.0 / std::pow(theta, static_cast<double>(i) / static_cast<double>(head_dim)));
  switch (scaling.kind) {
    case config::RopeScalingKind::None:
      break;
    case config::RopeScalingKind::Linear:
      for (double& freq : rope.inv_freq) freq /= scaling.factor;
      break;
    case config::RopeScalingKind::Llama3:
      for (double& freq : rope.inv_freq) freq = llama3(freq, scaling);
      break;
    case config::RopeScalingKind::Yarn:
      yarn(rope.inv_freq, theta, head_dim, scaling);
      rope.scale = yarn_scale(scaling);
      break;
    case config::RopeScalingKind::Longrope: {
      const std::vector<double>& factors =
          scaling.positions > scaling.original_positions ? scaling.long_factors : scaling.short_factors;
      if (factors.size() != rope.inv_freq.size())
        base::fail_user("longrope needs {} factors, one per rotated pair of features, got {}",
                        rope.inv_freq.size(), factors.size());
      for (size_t i = 0; i < factors.size(); ++i) rope.inv_freq[i] /= factors[i];
      rope.scale = longrope_scale(scaling);
      break;
    }
  }
  return rope;
}

}  // namespace quintet::models
