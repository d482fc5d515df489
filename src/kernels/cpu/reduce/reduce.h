// Reductions over flat ranges and over token rows.
#pragma once

#include "kernels/cpu/support/types.h"

namespace quintet::kernels::cpu {

// Bytes of scratch for sum_squares and any_nonfinite over n elements.
int64_t reduce_workspace_bytes(int64_t n);

// *out = (or +=) sum of x^2, squares and sums in double.
template <class T>
void sum_squares(const T* x, int64_t n, double* out, bool accumulate, void* workspace, ThreadPool& pool);

// *out = max(*out, |x|), or infinity where an element is NaN. `workspace` as for sum_squares.
template <class T>
void max_abs(const T* x, int64_t n, double* out, void* workspace, ThreadPool& pool);

// *out = (or |=) 1 if any element is infinite or NaN, else 0.
template <class T>
void any_nonfinite(const T* x, int64_t n, int32_t* out, bool accumulate, void* workspace, ThreadPool& pool);

// db[n] = (or +=) sum over rows of dy[rows, n]: the gradient of a bias.
template <class T>
int64_t column_sum_workspace_bytes(int64_t rows, int64_t n);
template <class T>
void column_sum(const T* dy, Grad<T>* db, bool accumulate, int64_t rows, int64_t n, void* workspace,
                ThreadPool& pool);

// A 64-bit hash of a byte range for comparing replicas: the same for the same bytes on every machine,
// sensitive to position. Not cryptographic.
int64_t hash_workspace_bytes(int64_t bytes);
uint64_t hash_bytes(const void* data, int64_t bytes, uint64_t seed, void* workspace, ThreadPool& pool);

// The builds per instruction set (support/isa.h).
template <class T>
struct ReduceVariants {
  decltype(&cpu::sum_squares<T>) sum_squares;
  decltype(&cpu::any_nonfinite<T>) any_nonfinite;
  decltype(&cpu::column_sum<T>) column_sum;
  decltype(&cpu::hash_bytes) hash_bytes;
};

}  // namespace quintet::kernels::cpu
