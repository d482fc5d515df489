#pragma once

#include "kernels/cpu/reduce.h"

namespace quintet::kernels::cpu {

template <class T>
struct ReduceVariants {
  decltype(&cpu::sum_squares<T>) sum_squares;
  decltype(&cpu::any_nonfinite<T>) any_nonfinite;
  decltype(&cpu::column_sum<T>) column_sum;
  decltype(&cpu::hash_bytes) hash_bytes;
};

}  // namespace quintet::kernels::cpu
