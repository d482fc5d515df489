#pragma once

#include "kernels/cpu/heads.h"

namespace quintet::kernels::cpu {

template <class T>
struct HeadsVariants {
  decltype(&cpu::join_heads<T>) join_heads;
  decltype(&cpu::join_heads_backward<T>) join_heads_backward;
};

}  // namespace quintet::kernels::cpu
