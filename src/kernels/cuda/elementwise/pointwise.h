// Elementwise copies, casts and sums over n elements. Outputs may alias inputs of the same type.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// c = a + b
template <class T>
void add(const T* a, const T* b, T* c, int64_t n, Stream stream);

// x[rows, n] + b[n] -> y: the bias of a linear layer.
template <class T>
void add_bias(const T* x, const T* b, T* y, int64_t rows, int64_t n, Stream stream);

// y += alpha * x, computed in the wider of the two Stat types and rounded once. X, Y any of the three
// types.
template <class X, class Y>
void accumulate(const X* x, Y* y, double alpha, int64_t n, Stream stream);

// Round to nearest even; X, Y any of the three types. x and y must not overlap unless they are the same range
// and type.
template <class X, class Y>
void cast(const X* x, Y* y, int64_t n, Stream stream);

template <class T>
void fill(T* y, double value, int64_t n, Stream stream);
void zero(void* y, int64_t bytes, Stream stream);
// Numbers in (-1, 1) from a hash of the index: operands for timing.
template <class T>
void fill_noise(T* y, int64_t n, Stream stream);

// y = alpha * x
template <class T>
void scale(const T* x, double alpha, T* y, int64_t n, Stream stream);

// x[a, b, block_bytes] -> y[b, a, block_bytes]; y must not overlap x.
void swap_blocks(const void* x, void* y, int64_t a, int64_t b, int64_t block_bytes, Stream stream);

}  // namespace quintet::kernels::cuda
