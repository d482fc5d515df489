#pragma once

#include "kernels/cpu/norm.h"

namespace quintet::kernels::cpu {

template <class T>
struct NormVariants {
  decltype(&cpu::rmsnorm<T>) rmsnorm;
  decltype(&cpu::rmsnorm_dx<T>) rmsnorm_dx;
  decltype(&cpu::rmsnorm_dw<T>) rmsnorm_dw;
  decltype(&cpu::layernorm<T>) layernorm;
  decltype(&cpu::layernorm_dx<T>) layernorm_dx;
  decltype(&cpu::layernorm_dw<T>) layernorm_dw;
};

}  // namespace quintet::kernels::cpu
