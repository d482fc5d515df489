#pragma once

#include "kernels/cpu/dropout.h"

namespace quintet::kernels::cpu {

template <class T>
struct DropoutVariants {
  decltype(&cpu::dropout<T>) dropout;
};

}  // namespace quintet::kernels::cpu
