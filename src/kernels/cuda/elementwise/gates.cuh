// Activations and their derivatives, for the kernels that apply them.
#pragma once

#include "kernels/cuda/elementwise/sigmoid.cuh"

namespace quintet::kernels::cuda {

// 0.5 (1 + tanh(u)) is the sigmoid of 2 u, which avoids cancellation at large |u|.
template <class T>
__device__ __forceinline__ Stat<T> gelu_argument(Stat<T> x) {
  using S = Stat<T>;
  return S(1.5957691216057307118) * (x + S(0.044715) * x * x * x);
}

// An activation's value and derivative.
template <class T>
struct Slope {
  Stat<T> value, slope;
};
struct Silu {
  template <class T>
  static __device__ __forceinline__ Stat<T> value(Stat<T> x) {
    return x * sigmoid<T>(x).s;
  }
  template <class T>
  static __device__ __forceinline__ Slope<T> both(Stat<T> x) {
    const Sigmoid<T> g = sigmoid<T>(x);
    return {x * g.s, g.s * (Stat<T>(1) + x * g.c)};
  }
};
struct Gelu {
  template <class T>
  static __device__ __forceinline__ Stat<T> value(Stat<T> x) {
    return x * sigmoid<T>(gelu_argument<T>(x)).s;
  }
  template <class T>
  static __device__ __forceinline__ Slope<T> both(Stat<T> x) {
    using S = Stat<T>;
    const Sigmoid<T> g = sigmoid<T>(gelu_argument<T>(x));
    const S inner = S(1.5957691216057307118) * (S(1) + S(3 * 0.044715) * x * x);
    // c is 0 where inner overflows only if x itself is infinite.
    return {x * g.s, g.s + (g.c == S(0) || g.s == S(0) ? S(0) : x * g.s * g.c * inner)};
  }
};
struct GeluErf {
  template <class T>
  static __device__ __forceinline__ Stat<T> value(Stat<T> x) {
    return both<T>(x).value;
  }
  // erfc keeps the digits of the small probabilities left of zero; the density is 0 where x is infinite.
  template <class T>
  static __device__ __forceinline__ Slope<T> both(Stat<T> x) {
    using S = Stat<T>;
    const S below = S(0.5) * erfc(-x * S(0.70710678118654752440)),
            density = S(0.39894228040143267794) * exp(S(-0.5) * x * x);
    return {x * below, below + (density == S(0) ? S(0) : x * density)};
  }
};

}  // namespace quintet::kernels::cuda
