// Optimizer updates over ranges of flat buffers; each range has its own lr factor and weight decay. Values
// that change from step to step are read from device memory when the kernel runs. When *ok is 0 nothing is
// written, so a skipped step leaves every bit of state unchanged.
#pragma once

#include <span>

#include "kernels/cuda/support/types.h"
#include "kernels/trust_ratio.h"
#include "kernels/update_ranges.h"

namespace quintet::kernels::cuda {

// All scalars are doubles, counters too: they are elements of the program's scalar array.
struct AdamWScalars {
  const double* lr = nullptr;
  const double* step = nullptr;         // number of this update, counted from 1 (bias correction)
  const double* clip_scale = nullptr;   // gradients are multiplied by it; null: 1
  const double* ok = nullptr;           // null: always
  const double* decay_ratio = nullptr;  // factor on weight decay; null: 1
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool coupled = false;  // Adam: weight_decay * p is added to the gradient instead
};

// As in torch.optim.AdamW: p -= lr * wd * p; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
// p -= lr / (1 - b1^step) * m / (sqrt(v / (1 - b2^step)) + eps). `copy` (null: none) receives p rounded to
// Copy. Arithmetic is in Master. Instances <Master, Moment, Gradient, Copy>: <double, double, double, any of
// the three>, <float, float, float, float>, <float, float, float, Bf16>, <float, float, Bf16, Bf16>, <float,
// Bf16, float, float>, <float, Bf16, float, Bf16>, <float, Bf16, Bf16, Bf16>.
template <class Master, class Moment, class Gradient, class Copy>
void adamw(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const AdamWScalars& scalars,
           Stream stream);

// The same for a split master, stored as the bf16 weight and a 16-bit remainder: its bits are (weight's bits
// << 16) + remainder, the remainder being signed. So the weight is the master rounded to nearest, ties away
// from zero, and no bit is stored twice. Instances <float, float>, <float, Bf16>, <Bf16, float>, <Bf16,
// Bf16>.
template <class Moment, class Gradient>
void adamw(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const AdamWScalars& scalars,
           Stream stream);
// Splits a master into weight and remainder.
void split_master(const float* master, Bf16* weight, int16_t* remainder, int64_t n, Stream stream);

struct SgdScalars {
  const double* lr = nullptr;
  const double* step = nullptr;         // number of this update, for stochastic rounding
  const double* clip_scale = nullptr;   // null: 1
  const double* ok = nullptr;           // null: always
  const double* decay_ratio = nullptr;  // factor on weight decay; null: 1
  double momentum = 0.0;
  bool nesterov = false;
};

// p -= lr * wd * p; u = momentum u + g; p -= lr * (nesterov ? g + momentum u : u). u is the first moment,
// null when momentum is 0. Same instances as adamw.
template <class Master, class Moment, class Gradient, class Copy>
void sgd(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const SgdScalars& scalars,
         Stream stream);
template <class Moment, class Gradient>
void sgd(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const SgdScalars& scalars,
         Stream stream);

struct LionScalars {
  const double* lr = nullptr;
  const double* step = nullptr;         // number of this update, for stochastic rounding
  const double* clip_scale = nullptr;   // null: 1
  const double* ok = nullptr;           // null: always
  const double* decay_ratio = nullptr;  // factor on weight decay; null: 1
  double beta1 = 0.9;
  double beta2 = 0.99;
};

// p -= lr * wd * p; p -= lr * sign(b1 m + (1 - b1) g), with sign(0) = 0; m = b2 m + (1 - b2) g. Same
// instances as adamw.
template <class Master, class Moment, class Gradient, class Copy>
void lion(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const LionScalars& scalars,
          Stream stream);
template <class Moment, class Gradient>
void lion(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const LionScalars& scalars,
          Stream stream);

struct EmaScalars {
  const double* ok = nullptr;  // null: always
  double decay = 0;
};

// average += (1 - decay) x (weight - average). Instances float and double, and split masters.
template <class Master>
void ema(std::span<const EmaRange<Master>> ranges, const EmaScalars& scalars, Stream stream);
void ema(std::span<const SplitEmaRange> ranges, const EmaScalars& scalars, Stream stream);

// LAMB and LARS scale an update by a ratio of two norms of the whole parameter (UpdateRange::norms; null: 1).
struct LambScalars {
  const double* lr = nullptr;
  const double* step = nullptr;
  const double* clip_scale = nullptr;   // null: 1
  const double* ok = nullptr;           // null: always
  const double* decay_ratio = nullptr;  // factor on weight decay; null: 1
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  RatioLimits limits;
};

// m and v as in adamw; u = m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps) + wd p;
// p -= lr * ratio * u with ratio = sqrt(norms[0] / norms[1]) within its limits, or 1 if either is 0. Same
// instances as adamw.
template <class Master, class Moment, class Gradient, class Copy>
void lamb(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const LambScalars& scalars,
          Stream stream);
template <class Moment, class Gradient>
void lamb(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const LambScalars& scalars,
          Stream stream);

struct LarsScalars {
  const double* lr = nullptr;
  const double* step = nullptr;         // number of this update, for stochastic rounding
  const double* clip_scale = nullptr;   // null: 1
  const double* ok = nullptr;           // null: always
  const double* decay_ratio = nullptr;  // factor on weight decay; null: 1
  double momentum = 0.0;
  double trust = 0.001;
  RatioLimits limits;
};

// u = momentum u + lr * ratio * (g + wd p); p -= u, with ratio = trust * |p| / (|g| + wd |p|) within its
// limits, or 1 if |p| or |g| is 0; |p| and |g| are the square roots of norms[0] and norms[1]. u is the first
// moment, null when momentum is 0. Same instances as adamw.
template <class Master, class Moment, class Gradient, class Copy>
void lars(std::span<const UpdateRange<Master, Moment, Gradient, Copy>> ranges, const LarsScalars& scalars,
          Stream stream);
template <class Moment, class Gradient>
void lars(std::span<const SplitUpdateRange<Moment, Gradient>> ranges, const LarsScalars& scalars,
          Stream stream);

// norms[0] += |p|^2 and norms[1] += |u|^2 (LAMB's update) or |g|^2 (LARS), over one range, summed in double.
// Needs twice the workspace of sum_squares over as many elements.
template <class Master, class Moment, class Gradient, class Copy>
void lamb_norms(const UpdateRange<Master, Moment, Gradient, Copy>& range, const LambScalars& scalars,
                double* norms, void* workspace, Stream stream);
template <class Moment, class Gradient>
void lamb_norms(const SplitUpdateRange<Moment, Gradient>& range, const LambScalars& scalars, double* norms,
                void* workspace, Stream stream);
template <class Master, class Moment, class Gradient, class Copy>
void lars_norms(const UpdateRange<Master, Moment, Gradient, Copy>& range, const LarsScalars& scalars,
                double* norms, void* workspace, Stream stream);
template <class Moment, class Gradient>
void lars_norms(const SplitUpdateRange<Moment, Gradient>& range, const LarsScalars& scalars, double* norms,
                void* workspace, Stream stream);

}  // namespace quintet::kernels::cuda
