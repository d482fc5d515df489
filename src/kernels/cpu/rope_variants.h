#pragma once

#include "kernels/cpu/rope.h"

namespace quintet::kernels::cpu {

template <class T>
struct RopeVariants {
  decltype(&cpu::rope<T>) rope;
};

}  // namespace quintet::kernels::cpu
