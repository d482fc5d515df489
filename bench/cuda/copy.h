// Device-to-device copy with 16-byte accesses by a kernel that does nothing else.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::bench {

void copy_by_kernel(const void* from, void* to, int64_t bytes, kernels::cuda::Stream stream);

}  // namespace quintet::bench
