// Launching with checks, and the 16-byte rule.
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

inline bool aligned16(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }
// Null counts as aligned: an absent operand is not read.
template <class... P>
bool all_aligned16(const P*... p) {
  return (aligned16(p) && ...);
}

}  // namespace quintet::kernels::cuda
