#pragma once

#include "kernels/cpu/activation.h"

namespace quintet::kernels::cpu {

template <class T>
struct ActivationVariants {
  decltype(&cpu::swiglu<T>) swiglu;
  decltype(&cpu::swiglu_backward<T>) swiglu_backward;
  decltype(&cpu::gelu<T>) gelu;
  decltype(&cpu::gelu_backward<T>) gelu_backward;
  decltype(&cpu::silu<T>) silu;
  decltype(&cpu::silu_backward<T>) silu_backward;
};

}  // namespace quintet::kernels::cpu
