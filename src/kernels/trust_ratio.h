// The ratio of norms by which LAMB and LARS scale an update.
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define QUINTET_RATIO __host__ __device__ __forceinline__
#else
#define QUINTET_RATIO inline
#endif

namespace quintet::kernels {

struct RatioLimits {
  double least = 0;
  double most = 0;  // 0: no upper limit
};

QUINTET_RATIO double limited(double ratio, RatioLimits limits) {
  if (ratio < limits.least) return limits.least;
  return limits.most > 0 && ratio > limits.most ? limits.most : ratio;
}

// Squared norms of the whole parameter and of its update; null: no ratio applies. The ratio is 1, whatever
// the limits, if it does not apply or a norm is 0: there is nothing to compare.
QUINTET_RATIO bool has_ratio(const double* norms) { return norms != nullptr && norms[0] > 0 && norms[1] > 0; }

QUINTET_RATIO double lamb_ratio(const double* norms, RatioLimits limits) {
  return has_ratio(norms) ? limited(sqrt(norms[0] / norms[1]), limits) : 1;
}

QUINTET_RATIO double lars_ratio(const double* norms, double trust, double weight_decay, RatioLimits limits) {
  if (!has_ratio(norms)) return 1;
  const double weight = sqrt(norms[0]), gradient = sqrt(norms[1]);
  return limited(trust * weight / (gradient + weight_decay * weight), limits);
}

}  // namespace quintet::kernels

#undef QUINTET_RATIO
