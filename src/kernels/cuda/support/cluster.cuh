// Communication between the blocks of a cluster (Hopper on): words written to another block's shared memory,
// whose arrival is signalled to a barrier there. Unlike with a barrier of the whole cluster, nobody waits for
// earlier writes to global memory.
#pragma once

#include "kernels/cuda/support/barrier.cuh"

namespace quintet::kernels::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ int cluster_rank() {
  int v;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(v));
  return v;
}
__device__ __forceinline__ int cluster_size() {
  int v;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(v));
  return v;
}
// Called by all threads: after it every block of the cluster runs and has made its barriers.
__device__ __forceinline__ void start_cluster() {
  publish_barriers();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Writes two words to another block's shared memory, at the address that `mine` has in this block's, and
// signals its barrier. The cluster must have at least two blocks (compute-sanitizer insists).
__device__ __forceinline__ void send(int rank, const void* mine, float2 words, const uint64_t* barrier) {
  uint32_t to, told;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(mine)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(told) : "r"(shared_address(barrier)), "r"(rank));
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(to),
      "f"(words.x), "f"(words.y), "r"(told)
      : "memory");
}
#endif

}  // namespace quintet::kernels::cuda
