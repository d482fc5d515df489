#pragma once

#include "kernels/cpu/optimizer.h"

namespace quintet::kernels::cpu {

#define QUINTET_OPTIMIZER_TYPES(X) \
  X(double, double, double)        \
  X(double, double, float)         \
  X(double, double, Bf16)          \
  X(float, float, float)           \
  X(float, float, Bf16)            \
  X(float, Bf16, float)            \
  X(float, Bf16, Bf16)

template <class MasterType, class MomentType, class CopyType>
struct OptimizerTypes {
  using Master = MasterType;
  using Moment = MomentType;
  using Copy = CopyType;
};

template <class Types>
struct OptimizerVariants {
  decltype(&cpu::adamw<typename Types::Master, typename Types::Moment, typename Types::Copy>) adamw;
  decltype(&cpu::sgd<typename Types::Master, typename Types::Moment, typename Types::Copy>) sgd;
};

}  // namespace quintet::kernels::cpu
