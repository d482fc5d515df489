// Asynchronous copies from global to shared memory. A thread sees what it copied itself once it has waited;
// others see it after a barrier as well.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// An address in the shared window, as instructions take it.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// kBytes is 16 (not kept in L1) or 4; both addresses are multiples of it. `shared` is an address in the
// shared window.
template <int kBytes>
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
  } else {
    static_assert(kBytes == 4);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
  }
}
template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  copy_async<kBytes>(shared_address(shared), global);
}
// The same for 16 bytes, with an L2 cache policy (l2_policy.cuh).
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "l"(policy)
               : "memory");
}

// Ends a group of this thread's copies, which may be empty.
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all groups of this thread except the last kLeft have arrived.
template <int kLeft>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace quintet::kernels::cuda
