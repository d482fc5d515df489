// A word set by the device, in stream order.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// *word = value; immediately visible to the host if `word` is page-locked host memory.
void mark(uint32_t* word, uint32_t value, Stream stream);

}  // namespace quintet::kernels::cuda
