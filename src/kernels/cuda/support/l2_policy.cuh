// How long the L2 cache keeps the lines of an access. Memory that is written some microseconds after it was
// read is written faster if its lines are still there: they are marked to stay when they are read, and become
// normal lines again once they are written. Only in code for GPUs from Ampere on.
#pragma once

#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// Lines are evicted last. A kernel that reads with it must write with l2_as_usual(), or they stay longer than
// they are useful.
__device__ __forceinline__ uint64_t l2_keep() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t l2_as_usual() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// store() of 16 bytes with a policy.
template <int V, class T>
__device__ __forceinline__ void store(T* p, const Vals<Stat<T>, V>& x, uint64_t policy) {
  static_assert(V == kWide<T>);
  const uint4 raw = packed<T, V>(x).raw;
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "r"(raw.x), "r"(raw.y),
               "r"(raw.z), "r"(raw.w), "l"(policy)
               : "memory");
}
#endif

}  // namespace quintet::kernels::cuda
