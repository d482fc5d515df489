#pragma once

#include "kernels/cpu/attention.h"

namespace quintet::kernels::cpu {

template <class T>
struct AttentionVariants {
  decltype(&cpu::attention<T>) attention;
};

template <class T>
struct AttentionBackwardVariants {
  decltype(&cpu::attention_backward<T>) attention_backward;
};

}  // namespace quintet::kernels::cpu
