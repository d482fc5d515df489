// Launching with checks, the 16-byte rule, and how a kernel begins.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/error.h"
#include "kernels/cuda/types.h"
#include "kernels/cuda_sizes/sizes.h"

namespace quintet::kernels::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(std::string(what) + ": " + cudaGetErrorString(status));
}
inline void check_launch(const char* what) { check(cudaGetLastError(), what); }

// The first statement of every kernel (tools/check_layers.py looks). In a captured graph a kernel may take
// its place while the one before it still ends (device/cuda/overlap.h). Behind this line that one is complete
// and what it wrote can be seen; the next kernel may take its place in turn. Elsewhere it does nothing.
__device__ __forceinline__ void await_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

inline bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
// Null counts as aligned: an absent operand is not read.
template <class... P>
bool all_aligned16(const P*... p) {
  return (aligned16(p) && ...);
}

}  // namespace quintet::kernels::cuda
