// What was written to memory that had been set to a pattern.
#pragma once

#include <cstddef>

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// *top := 1 + the index of the last of data's bytes that is not `pattern`; 0 when all are. `top` is device
// memory.
void last_changed(const std::byte* data, int64_t bytes, unsigned char pattern, unsigned long long* top,
                  Stream stream);

}  // namespace quintet::kernels::cuda
