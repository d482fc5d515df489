// Reductions over flat ranges and over token rows.
#pragma once

#include <span>

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// Bytes of scratch for sum_squares and any_nonfinite over n elements; for several parts, the sum over them.
int64_t reduce_workspace_bytes(int64_t n);

// *out = (or +=) sum of x^2, squares and sums in double.
template <class T>
void sum_squares(const T* x, int64_t n, double* out, bool accumulate, void* workspace, Stream stream);

// The same over several parts. The list is in host memory and read during the call.
template <class T>
void sum_squares(std::span<const std::span<const T>> parts, double* out, bool accumulate, void* workspace,
                 Stream stream);

// *out = the largest |x| over several parts, or (accumulate) of that and *out; infinity where an element is
// NaN.
template <class T>
void max_abs(std::span<const std::span<const T>> parts, double* out, bool accumulate, void* workspace,
             Stream stream);

// *out = (or |=) 1 if any element is infinite or NaN, else 0.
template <class T>
void any_nonfinite(const T* x, int64_t n, int32_t* out, bool accumulate, void* workspace, Stream stream);

// db[n] = (or +=) sum over rows of dy[rows, n]: the gradient of a bias. D is Grad<T>, or Bf16 for T = Bf16.
template <class T>
int64_t column_sum_workspace_bytes(int64_t rows, int64_t n);
template <class T, class D>
void column_sum(const T* dy, D* db, bool accumulate, int64_t rows, int64_t n, void* workspace, Stream stream);

// *out = (or +=) the sum of x[n], in a fixed order.
void sum(const double* x, int64_t n, double* out, bool accumulate, Stream stream);

}  // namespace quintet::kernels::cuda
