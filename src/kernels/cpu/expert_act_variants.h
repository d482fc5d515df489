#pragma once

#include "kernels/cpu/expert_act.h"

namespace quintet::kernels::cpu {

template <class T>
struct ExpertActVariants {
  decltype(&cpu::expert_act<T>) expert_act;
  decltype(&cpu::expert_act_backward<T>) expert_act_backward;
  decltype(&cpu::scale_rows<T>) scale_rows;
  decltype(&cpu::scale_rows_backward<T>) scale_rows_backward;
};

}  // namespace quintet::kernels::cpu
