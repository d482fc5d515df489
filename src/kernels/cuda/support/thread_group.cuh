// Sums over the threads that share a row: one warp, or the whole block. Fixed trees, so always the same bits.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

template <class S, class F>
__device__ __forceinline__ S warp_fold(S v, F f) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) v = f(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}

// Folds v over all threads of the block and gives every thread the result. `shared` holds 32 values; it may
// be used again as soon as this returns. The block must be a multiple of 32 threads.
template <class S, class F>
__device__ __forceinline__ S block_fold(S v, S* shared, F f) {
  v = warp_fold(v, f);
  const int warps = static_cast<int>(blockDim.x * blockDim.y / 32);
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  if (thread % 32 == 0) shared[thread / 32] = v;
  __syncthreads();
  S all = shared[0];
  for (int w = 1; w < warps; ++w) all = f(all, shared[w]);
  __syncthreads();
  return all;
}

struct Plus {
  template <class S>
  __device__ __forceinline__ S operator()(S a, S b) const {
    return a + b;
  }
};
// The larger; NaN if either is NaN.
struct MaxNan {
  template <class S>
  __device__ __forceinline__ S operator()(S a, S b) const {
    if constexpr (sizeof(S) == sizeof(float)) {
      float y;
      asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      return y;
    } else {
      return (a > b || a != a) ? a : b;
    }
  }
};

// N sums at once over groups of kGroup lanes, or over the block when kGroup is 0; `shared` holds 32 * N
// values. All lanes of a warp must take part.
template <int kGroup, int N, class S>
__device__ __forceinline__ void group_sum(S (&v)[N], S* shared) {
#pragma unroll
  for (int i = 0; i < N; ++i)
#pragma unroll
    for (int d = (kGroup > 0 ? kGroup : 32) / 2; d > 0; d /= 2) v[i] += __shfl_xor_sync(0xffffffffu, v[i], d);
  if constexpr (kGroup == 0) {
    const int warps = static_cast<int>(blockDim.x / 32);
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int i = 0; i < N; ++i) shared[threadIdx.x / 32 * N + i] = v[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = shared[i];
    for (int w = 1; w < warps; ++w)
#pragma unroll
      for (int i = 0; i < N; ++i) v[i] += shared[w * N + i];
    __syncthreads();
  }
}

}  // namespace quintet::kernels::cuda
