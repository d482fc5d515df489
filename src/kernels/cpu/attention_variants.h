#pragma once

#include "kernels/cpu/attention.h"

namespace quintet::kernels::cpu {

template <class T>
struct AttentionVariants {
  decltype(&cpu::attention<T>) attention;
  decltype(&cpu::attention_hop<T>) attention_hop;
};

template <class T>
struct AttentionBackwardVariants {
  decltype(&cpu::attention_backward<T>) attention_backward;
  decltype(&cpu::attention_hop_backward<T>) attention_hop_backward;
};

}  // namespace quintet::kernels::cpu
