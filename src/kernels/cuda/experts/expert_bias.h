// Biases of experts, and numbers of a token's experts (graph/ops/expert_bias.cc). Stat<T> arithmetic. D is
// Grad<T>, or Bf16 for T = Bf16.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// out[row] = y[row] + b[expert of the row], over the rows received, which are contiguous by expert; received
// is [sources][experts], on the device. out may be y.
template <class T>
void expert_bias(const T* y, const T* b, const int32_t* received, int64_t experts, int64_t sources, T* out,
                 int64_t n, Stream stream);
// db[experts, n] (+)= the sum of dy over each expert's rows, in their order
template <class T, class D>
void expert_bias_dw(const T* dy, const int32_t* received, int64_t experts, int64_t sources, D* db,
                    bool accumulate, int64_t n, Stream stream);

template <class S>
void spread_choices(const S* weights, const int32_t* chosen, S* out, int64_t rows, int64_t k, int64_t experts,
                    Stream stream);
template <class S>
void gather_choices(const S* numbers, const int32_t* chosen, S* out, int64_t rows, int64_t k, int64_t experts,
                    Stream stream);

// logits[rows, routes] += b[routes]
template <class T>
void add_router_bias(const T* b, Stat<T>* logits, int64_t rows, int64_t routes, Stream stream);

}  // namespace quintet::kernels::cuda
