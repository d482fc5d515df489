// Elementwise copies, casts and sums over n elements. Outputs may alias inputs of the same type.
#pragma once

#include "kernels/cpu/support/types.h"

namespace quintet::kernels::cpu {

// c = a + b
template <class T>
void add(const T* a, const T* b, T* c, int64_t n, ThreadPool& pool);

// x[rows, n] + b[n] -> y: the bias of a linear layer.
template <class T>
void add_bias(const T* x, const T* b, T* y, int64_t rows, int64_t n, ThreadPool& pool);

// y += alpha * x, computed in the wider of the two Stat types and rounded once. X, Y any of the three
// types.
template <class X, class Y>
void accumulate(const X* x, Y* y, double alpha, int64_t n, ThreadPool& pool);

// Round to nearest even; X, Y any of the three types. x and y must not overlap unless they are the same range
// and type.
template <class X, class Y>
void cast(const X* x, Y* y, int64_t n, ThreadPool& pool);

template <class T>
void fill(T* y, double value, int64_t n, ThreadPool& pool);
void zero(void* y, int64_t bytes, ThreadPool& pool);

// y = alpha * x
template <class T>
void scale(const T* x, double alpha, T* y, int64_t n, ThreadPool& pool);

// The builds per instruction set (support/isa.h).
template <class T>
struct PointwiseVariants {
  decltype(&cpu::add<T>) add;
  decltype(&cpu::add_bias<T>) add_bias;
  decltype(&cpu::fill<T>) fill;
  decltype(&cpu::scale<T>) scale;
  decltype(&cpu::accumulate<double, T>) accumulate_from_f64;
  decltype(&cpu::accumulate<float, T>) accumulate_from_f32;
  decltype(&cpu::accumulate<Bf16, T>) accumulate_from_bf16;
  decltype(&cpu::accumulate<F16, T>) accumulate_from_f16;
  decltype(&cpu::cast<double, T>) cast_from_f64;
  decltype(&cpu::cast<float, T>) cast_from_f32;
  decltype(&cpu::cast<Bf16, T>) cast_from_bf16;
  decltype(&cpu::cast<F16, T>) cast_from_f16;
};

}  // namespace quintet::kernels::cpu
