// Finds how far a buffer that had been filled with a pattern was written.
#pragma once

#include <cstddef>

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// *top := 1 + the index of the last byte of data that differs from `pattern`; 0 when none does. `top` is
// device memory.
void last_changed(const std::byte* data, int64_t bytes, unsigned char pattern, unsigned long long* top,
                  Stream stream);

}  // namespace quintet::kernels::cuda
