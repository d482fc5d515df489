// Biases of experts, and numbers of a token's experts (graph/ops/expert_bias.cc). Stat<T> arithmetic.
#pragma once

#include "kernels/cpu/support/types.h"

namespace quintet::kernels::cpu {

// y of `received` rows of n, contiguous by expert, plus their experts' rows of b[experts, n]. received is
// [sources][experts]. out may be y.
template <class T>
void expert_bias(const T* y, const T* b, const int32_t* received, int64_t experts, int64_t sources, T* out,
                 int64_t n, ThreadPool& pool);
// db[experts, n] (+)= the sum of dy over each expert's rows
template <class T>
void expert_bias_dw(const T* dy, const int32_t* received, int64_t experts, int64_t sources, Grad<T>* db,
                    bool accumulate, int64_t n, ThreadPool& pool);

// out[rows, experts]: weights[rows, k] at their chosen experts, 0 elsewhere; a choice of -1 has no place.
template <class S>
void spread_choices(const S* weights, const int32_t* chosen, S* out, int64_t rows, int64_t k,
                    int64_t experts);
// out[rows, k] = numbers[rows, experts] of the chosen experts; 0 where the choice is -1.
template <class S>
void gather_choices(const S* numbers, const int32_t* chosen, S* out, int64_t rows, int64_t k,
                    int64_t experts);

// logits[rows, routes] += b[routes]
template <class T>
void add_router_bias(const T* b, Stat<T>* logits, int64_t rows, int64_t routes, ThreadPool& pool);

}  // namespace quintet::kernels::cpu
