#pragma once

#include "kernels/cpu/dispatch.h"

namespace quintet::kernels::cpu {

// unpack_rows: `slot_of` has each pair's slot or a negative number.
template <class T>
struct DispatchVariants {
  void (*sum_slots)(const T* y, const int32_t* slot_of, int64_t choices, const T* addend, T* x,
                    int64_t tokens, int64_t n, ThreadPool& pool);
  decltype(&cpu::sum_copies<T>) sum_copies;
};

}  // namespace quintet::kernels::cpu
