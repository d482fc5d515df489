#pragma once

#include "kernels/cpu/optimizer.h"

namespace quintet::kernels::cpu {

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

// Moments and gradient, of split masters.
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
};

template <class MomentType, class GradientType>
struct OptimizerVariants<SplitOptimizerTypes<MomentType, GradientType>> {
  decltype(&cpu::adamw_split<MomentType, GradientType>) adamw;
  decltype(&cpu::sgd_split<MomentType, GradientType>) sgd;
};

}  // namespace quintet::kernels::cpu
