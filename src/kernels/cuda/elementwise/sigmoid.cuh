// The sigmoid of an activation and its complement.
#pragma once

#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

// s = 1 / (1 + exp(-z)) and c = 1 - s, each with full relative accuracy.
template <class T>
struct Sigmoid {
  Stat<T> s, c;
};
template <class T>
__device__ __forceinline__ Sigmoid<T> sigmoid(Stat<T> z) {
  using S = Stat<T>;
  const S e = Math<T>::exp(z > S(0) ? -z : z);  // at most 1
  const S large = Math<T>::divide(S(1), S(1) + e), small = e * large;
  return {z > S(0) ? large : small, z > S(0) ? small : large};
}

}  // namespace quintet::kernels::cuda
