// Barriers in shared memory (Hopper on). A phase completes with the number of arrivals that the barrier was
// made for and with the announced bytes.
#pragma once

#include "kernels/cuda/support/async_copy.cuh"

namespace quintet::kernels::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ void make_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
// After it other threads, of other blocks too, may use the barriers that this one made.
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and announces the bytes that will follow.
__device__ __forceinline__ void announce(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// Waits until the phase of this parity (0, 1, 0, ...) is complete: its data can then be read. kOfCluster:
// data from other blocks.
template <bool kOfCluster = false>
__device__ __forceinline__ void await_turn(uint64_t* barrier, uint32_t parity) {
  if constexpr (kOfCluster)
    asm volatile(
        "{\n\t.reg .pred done;\n\tAGAIN:\n\t"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra AGAIN;\n\t}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
  else
    asm volatile(
        "{\n\t.reg .pred done;\n\tAGAIN:\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
        "@!done bra AGAIN;\n\t}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}
#endif

}  // namespace quintet::kernels::cuda
