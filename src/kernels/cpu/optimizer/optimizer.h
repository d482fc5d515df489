// Optimizer updates over a flat range of n elements. Values that change from step to step are read through
// pointers when the kernel runs. When *ok is 0 nothing is written, so a skipped step leaves every bit of
// state unchanged.
#pragma once

#include "kernels/cpu/optimizer/rounding.h"
#include "kernels/cpu/support/types.h"
#include "kernels/trust_ratio.h"
#include "kernels/update_ranges.h"

namespace quintet::kernels::cpu {

struct AdamWScalars {
  const double* lr = nullptr;
  const int64_t* step = nullptr;       // number of this update, counted from 1 (bias correction)
  const double* clip_scale = nullptr;  // gradients are multiplied by it; null: 1
  const int32_t* ok = nullptr;         // null: always
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool coupled = false;                // Adam: weight_decay * p is added to the gradient instead
  const Rounding* rounding = nullptr;  // of bf16 or double moments; null: to nearest
};

// As in torch.optim.AdamW: p -= lr * wd * p; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
// p -= lr / (1 - b1^step) * m / (sqrt(v / (1 - b2^step)) + eps). `copy` (null: none) receives p rounded to C.
// Arithmetic is in Master. Instances <Master, Moment, Gradient, Copy>: <double, double, double, any of the
// three>, <float, float, float, float>, <float, float, float, Bf16>, <float, float, Bf16, Bf16>, <float,
// Bf16, float, float>, <float, Bf16, float, Bf16>, <float, Bf16, Bf16, Bf16>.
template <class Master, class Moment, class Gradient, class Copy>
void adamw(Master* p, Moment* m, Moment* v, const Gradient* grad, Copy* copy, int64_t n,
           const AdamWScalars& scalars, ThreadPool& pool);

// The same arithmetic on a split master: the f32 master is stored as the bf16 weight and a 16-bit remainder
// (base/split_float.h). Moment and Gradient are float or Bf16.
template <class Moment, class Gradient>
void adamw_split(Bf16* weight, int16_t* remainder, Moment* m, Moment* v, const Gradient* grad, int64_t n,
                 const AdamWScalars& scalars, ThreadPool& pool);

struct SgdScalars {
  const double* lr = nullptr;
  const double* clip_scale = nullptr;  // null: 1
  const int32_t* ok = nullptr;         // null: always
  double momentum = 0.0;
  double weight_decay = 0.0;  // decoupled
  bool nesterov = false;
  const Rounding* rounding = nullptr;
};

// p -= lr * wd * p; u = momentum u + g; p -= lr * (nesterov ? g + momentum u : u). `velocity` may be null
// when momentum is 0. Same instances as adamw.
template <class Master, class Moment, class Gradient, class Copy>
void sgd(Master* p, Moment* velocity, const Gradient* grad, Copy* copy, int64_t n, const SgdScalars& scalars,
         ThreadPool& pool);
template <class Moment, class Gradient>
void sgd_split(Bf16* weight, int16_t* remainder, Moment* velocity, const Gradient* grad, int64_t n,
               const SgdScalars& scalars, ThreadPool& pool);

struct LionScalars {
  const double* lr = nullptr;
  const double* clip_scale = nullptr;  // null: 1
  const int32_t* ok = nullptr;         // null: always
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0.0;  // decoupled
  const Rounding* rounding = nullptr;
};

// p -= lr * wd * p; p -= lr * sign(b1 m + (1 - b1) g), with sign(0) = 0; m = b2 m + (1 - b2) g. Same
// instances as adamw.
template <class Master, class Moment, class Gradient, class Copy>
void lion(Master* p, Moment* m, const Gradient* grad, Copy* copy, int64_t n, const LionScalars& scalars,
          ThreadPool& pool);
template <class Moment, class Gradient>
void lion_split(Bf16* weight, int16_t* remainder, Moment* m, const Gradient* grad, int64_t n,
                const LionScalars& scalars, ThreadPool& pool);

// Moments as codes and a scale for every block of `block` elements (kernels/dynamic_map.h): m is
// signed.value[code] x scale, v is unsigned.value[code] x scale.
inline constexpr int64_t kMaxBlock = 4096;
template <class P>
struct Codes {
  uint8_t *m, *v;
  P *m_scale, *v_scale;
  int64_t block;  // at most kMaxBlock; the last block may be shorter
};

// AdamW: decodes the moments, updates them and p as adamw does, and stores for each block the largest |m| and
// the largest v as scales and the codes nearest to m / scale and v / scale. p moves by the moments before
// they are rounded. Instances <Master, Gradient, Copy>: <double, double, any of the three>, <float, float,
// float>, <float, float, Bf16>, <float, float, F16>, <float, Bf16, Bf16>; of split masters <float>, <Bf16>.
template <class Master, class Gradient, class Copy>
void adamw8bit(Master* p, const Codes<Master>& codes, const Gradient* grad, Copy* copy, int64_t n,
               const AdamWScalars& scalars, ThreadPool& pool);
template <class Gradient>
void adamw8bit_split(Bf16* weight, int16_t* remainder, const Codes<float>& codes, const Gradient* grad,
                     int64_t n, const AdamWScalars& scalars, ThreadPool& pool);

// average += (1 - decay) x (weight - average). Instances float and double.
template <class Master>
void ema(const Master* weight, Master* average, int64_t n, double decay, ThreadPool& pool);
void ema_split(const Bf16* weight, const int16_t* remainder, float* average, int64_t n, double decay,
               ThreadPool& pool);

struct LambScalars {
  const double* lr = nullptr;
  const int64_t* step = nullptr;       // number of this update, counted from 1 (bias correction)
  const double* clip_scale = nullptr;  // null: 1
  const int32_t* ok = nullptr;         // null: always
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  RatioLimits limits;
  const double* norms = nullptr;  // |p|^2 and |u|^2 of the whole parameter; null: a trust ratio of 1
  const Rounding* rounding = nullptr;
};

// LAMB (You et al., 2020): m and v as in adamw;
// u = m / (1 - b1^step) / (sqrt(v / (1 - b2^step)) + eps) + wd p; p -= lr * ratio * u
// with ratio = |p| / |u| within its limits, or 1 if either is 0. Same instances as adamw.
template <class Master, class Moment, class Gradient, class Copy>
void lamb(Master* p, Moment* m, Moment* v, const Gradient* grad, Copy* copy, int64_t n,
          const LambScalars& scalars, ThreadPool& pool);
template <class Moment, class Gradient>
void lamb_split(Bf16* weight, int16_t* remainder, Moment* m, Moment* v, const Gradient* grad, int64_t n,
                const LambScalars& scalars, ThreadPool& pool);
// norms[0] += |p|^2 and norms[1] += |u|^2, summed in double, where u is the update that lamb would apply.
// Needs twice the workspace of sum_squares over n elements.
template <class Master, class Moment, class Gradient, class Copy>
void lamb_norms(const Master* p, const Moment* m, const Moment* v, const Gradient* grad, int64_t n,
                const LambScalars& scalars, double* norms, void* workspace, ThreadPool& pool);
template <class Moment, class Gradient>
void lamb_norms_split(const Bf16* weight, const int16_t* remainder, const Moment* m, const Moment* v,
                      const Gradient* grad, int64_t n, const LambScalars& scalars, double* norms,
                      void* workspace, ThreadPool& pool);

struct LarsScalars {
  const double* lr = nullptr;
  const double* clip_scale = nullptr;  // null: 1
  const int32_t* ok = nullptr;         // null: always
  double momentum = 0.0;
  double trust = 0.001;
  double weight_decay = 0.0;
  RatioLimits limits;
  const double* norms = nullptr;  // |p|^2 and |g|^2 of the whole parameter; null: a trust ratio of 1
  const Rounding* rounding = nullptr;
};

// LARS (You et al., 2017): u = momentum u + lr * ratio * (g + wd p); p -= u, with
// ratio = trust * |p| / (|g| + wd |p|) within its limits, or 1 if |p| or |g| is 0. `velocity` may be null
// when momentum is 0. Same instances as adamw.
template <class Master, class Moment, class Gradient, class Copy>
void lars(Master* p, Moment* velocity, const Gradient* grad, Copy* copy, int64_t n,
          const LarsScalars& scalars, ThreadPool& pool);
template <class Moment, class Gradient>
void lars_split(Bf16* weight, int16_t* remainder, Moment* velocity, const Gradient* grad, int64_t n,
                const LarsScalars& scalars, ThreadPool& pool);
// norms[0] += |p|^2 and norms[1] += |g|^2.
template <class Master, class Moment, class Gradient, class Copy>
void lars_norms(const Master* p, const Gradient* grad, int64_t n, const LarsScalars& scalars, double* norms,
                void* workspace, ThreadPool& pool);
template <class Moment, class Gradient>
void lars_norms_split(const Bf16* weight, const int16_t* remainder, const Gradient* grad, int64_t n,
                      const LarsScalars& scalars, double* norms, void* workspace, ThreadPool& pool);

// Master, moments, gradient, copy.
#define QUINTET_OPTIMIZER_TYPES(X)  \
  X(double, double, double, double) \
  X(double, double, double, float)  \
  X(double, double, double, Bf16)   \
  X(float, float, float, float)     \
  X(float, float, float, Bf16)      \
  X(float, float, float, F16)       \
  X(float, float, Bf16, Bf16)       \
  X(float, Bf16, float, float)      \
  X(float, Bf16, float, Bf16)       \
  X(float, Bf16, float, F16)        \
  X(float, Bf16, Bf16, Bf16)

// Moments and gradient, for split masters.
#define QUINTET_SPLIT_OPTIMIZER_TYPES(X) \
  X(float, float)                        \
  X(float, Bf16)                         \
  X(Bf16, float)                         \
  X(Bf16, Bf16)

template <class MasterType, class MomentType, class GradientType, class CopyType>
struct OptimizerTypes {
  using Master = MasterType;
  using Moment = MomentType;
  using Gradient = GradientType;
  using Copy = CopyType;
};

template <class MomentType, class GradientType>
struct SplitOptimizerTypes {
  using Moment = MomentType;
  using Gradient = GradientType;
};

template <class Types>
struct OptimizerVariants {
  decltype(&cpu::adamw<typename Types::Master, typename Types::Moment, typename Types::Gradient,
                       typename Types::Copy>) adamw;
  decltype(&cpu::sgd<typename Types::Master, typename Types::Moment, typename Types::Gradient,
                     typename Types::Copy>) sgd;
  decltype(&cpu::lion<typename Types::Master, typename Types::Moment, typename Types::Gradient,
                      typename Types::Copy>) lion;
  decltype(&cpu::lamb<typename Types::Master, typename Types::Moment, typename Types::Gradient,
                      typename Types::Copy>) lamb;
  decltype(&cpu::lamb_norms<typename Types::Master, typename Types::Moment, typename Types::Gradient,
                            typename Types::Copy>) lamb_norms;
  decltype(&cpu::lars<typename Types::Master, typename Types::Moment, typename Types::Gradient,
                      typename Types::Copy>) lars;
  decltype(&cpu::lars_norms<typename Types::Master, typename Types::Moment, typename Types::Gradient,
                            typename Types::Copy>) lars_norms;
};

template <class MomentType, class GradientType>
struct OptimizerVariants<SplitOptimizerTypes<MomentType, GradientType>> {
  decltype(&cpu::adamw_split<MomentType, GradientType>) adamw;
  decltype(&cpu::sgd_split<MomentType, GradientType>) sgd;
  decltype(&cpu::lion_split<MomentType, GradientType>) lion;
  decltype(&cpu::lamb_split<MomentType, GradientType>) lamb;
  decltype(&cpu::lamb_norms_split<MomentType, GradientType>) lamb_norms;
  decltype(&cpu::lars_split<MomentType, GradientType>) lars;
  decltype(&cpu::lars_norms_split<MomentType, GradientType>) lars_norms;
};

}  // namespace quintet::kernels::cpu
