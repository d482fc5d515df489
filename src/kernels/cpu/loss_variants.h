#pragma once

#include "kernels/cpu/loss.h"

namespace quintet::kernels::cpu {

template <class T>
struct LossVariants {
  decltype(&cpu::row_max<T>) row_max;
  decltype(&cpu::row_sumexp<T>) row_sumexp;
  decltype(&cpu::cross_entropy_backward<T>) cross_entropy_backward;
  decltype(&cpu::cross_entropy<T>) cross_entropy;
};

}  // namespace quintet::kernels::cpu
