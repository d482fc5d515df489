// Concatenation of two parts of every head.
#pragma once

#include "kernels/cpu/support/types.h"

namespace quintet::kernels::cpu {

// y[row, head] = a[row, head] (width d1), then b[row, head] (width d2), or b[row] where all heads share it.
template <class T>
void join_heads(const T* a, const T* b, bool shared, T* y, int64_t rows, int64_t heads, int64_t d1,
                int64_t d2, ThreadPool& pool);
// da and db from dy; a shared db is the sum over the heads, in their order.
template <class T>
void join_heads_backward(const T* dy, bool shared, T* da, T* db, int64_t rows, int64_t heads, int64_t d1,
                         int64_t d2, ThreadPool& pool);

// The builds per instruction set (support/isa.h).
template <class T>
struct HeadsVariants {
  decltype(&cpu::join_heads<T>) join_heads;
  decltype(&cpu::join_heads_backward<T>) join_heads_backward;
};

}  // namespace quintet::kernels::cpu
