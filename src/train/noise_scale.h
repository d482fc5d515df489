// Gradient noise scale (McCandlish et al., 2018, appendix A.1): the batch size at which the noise of the
// gradient is as large as the gradient. From the squared norms of two gradients of the same weights, over a
// small and a large batch:
//   |G|^2 = (B |g_B|^2 - b |g_b|^2) / (B - b)      without bias, the squared norm of the true gradient
//   S     = (|g_b|^2 - |g_B|^2) / (1 / b - 1 / B)  without bias, the variance of one token's gradient
//   noise scale = S / |G|^2, each averaged over several estimates
#pragma once

#include <cstdint>

namespace quintet::train {

// The squared norm of a gradient that is a mean over `tokens` valid tokens.
struct GradientNorm {
  double squared = 0;
  int64_t tokens = 0;
};

class NoiseScale {
 public:
  // An estimate from two batches of the same step. Nothing is added unless both norms are finite and the
  // large batch has more tokens than the small one.
  void add(const GradientNorm& small, const GradientNorm& large);

  int64_t estimates() const { return estimates_; }
  // Averages over the estimates; the last ones weigh most (each 0.9 of the one after it).
  double variance() const { return variance_ / weight_; }
  double squared_gradient() const { return squared_ / weight_; }
  // In tokens. A single estimate may be negative or huge: it is a ratio of differences.
  double tokens() const { return variance_ / squared_; }

  // The sums that the averages come from, for saving and continuing.
  struct Sums {
    int64_t estimates = 0;
    double variance = 0, squared = 0, weight = 0;
  };
  Sums sums() const { return {estimates_, variance_, squared_, weight_}; }
  void restore(const Sums& s) {
    estimates_ = s.estimates, variance_ = s.variance, squared_ = s.squared, weight_ = s.weight;
  }

 private:
  int64_t estimates_ = 0;
  double variance_ = 0, squared_ = 0, weight_ = 0;
};

}  // namespace quintet::train
