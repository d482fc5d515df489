// Device memory to device memory, 16 bytes at a time, by a kernel with nothing else to do.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::bench {

void copy_by_kernel(const void* from, void* to, int64_t bytes, kernels::cuda::Stream stream);

}  // namespace quintet::bench
