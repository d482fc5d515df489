// Failures of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime_api.h>

#include "base/error.h"

namespace quintet::device::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that does not stick must not show in the next launch
  base::fail_internal("CUDA: {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace quintet::device::cuda
