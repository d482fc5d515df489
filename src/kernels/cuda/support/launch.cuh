// Checked launches, the 16-byte rule, and the first statement of a kernel.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/support/error.h"
#include "kernels/cuda/support/types.h"
#include "kernels/cuda_scratch/sizes.h"

namespace quintet::kernels::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(status));
}
inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

// The virtual architecture that a kernel was compiled for (90: Hopper). Code for an older GPU also runs on a
// newer one, without the newer features.
template <class K>
int architecture_of(K* kernel, const char* what) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel), what);
  return attributes.ptxVersion;
}

// Allows blocks of a kernel to use all shared memory: the same for all sizes, as other threads may be
// launching the same kernel.
template <class K>
void allow_all_shared(K* kernel, const char* what) {
  int device = 0, most = 0;
  cudaFuncAttributes attributes{};
  check(cudaGetDevice(&device), what);
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), what);
  check(cudaFuncGetAttributes(&attributes, kernel), what);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most - static_cast<int>(attributes.sharedSizeBytes)),
        what);
}

// The first statement of every kernel (checked by tools/check_layers.py). In a captured graph a kernel may
// start while the previous one is still ending (device/cuda/overlap.h). After this line that one is complete
// and its writes are visible, and the next kernel may start in turn. Elsewhere it does nothing.
__device__ __forceinline__ void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The same in two parts, for a kernel that first reads memory that no kernel writes (weights, when nothing
// trains): until await_writes() it must neither write nor read anything else.
__device__ __forceinline__ void allow_next() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ __forceinline__ void await_writes() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Which part of a launch a block belongs to: `parts` holds the number of parts (count) and, for each, the
// number of blocks up to and including it (block_end).
template <class Parts>
__device__ __forceinline__ int part_of_block(const Parts& parts, unsigned block) {
  int low = 0, high = parts.count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (block < parts.block_end[middle])
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

inline bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
// Null counts as aligned: an absent operand is not read.
template <class... P>
bool all_aligned16(const P*... p) {
  return (aligned16(p) && ...);
}

}  // namespace quintet::kernels::cuda
