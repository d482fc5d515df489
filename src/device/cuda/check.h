// Turns failures of the CUDA runtime into exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace quintet::device::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clear a non-sticky error so that the next launch does not report it
  base::fail_internal("CUDA: {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace quintet::device::cuda
