// Small ops on rows (graph/ops/rows.cc). Stat<T> arithmetic; outputs may be the inputs of the same position.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

template <class T>
void center(const T* x, T* y, int64_t rows, int64_t n, Stream stream);
template <class T>
void unit_norm(const T* x, T* y, int64_t rows, int64_t n, double eps, Stream stream);
template <class T>
void unit_norm_backward(const T* dy, const T* x, T* dx, int64_t rows, int64_t n, double eps, Stream stream);
template <class T>
void clip(const T* x, double limit, T* y, int64_t n, Stream stream);
template <class T>
void clip_backward(const T* dy, const T* x, double limit, T* dx, int64_t n, Stream stream);
template <class T>
void position_scale(const T* x, const int32_t* positions, T* y, int64_t rows, int64_t n, double scale,
                    int64_t floor, Stream stream);
void split_documents(const int32_t* documents, const int32_t* positions, int32_t* out, int64_t rows,
                     int64_t chunk, int64_t seq_len, Stream stream);

}  // namespace quintet::kernels::cuda
