// The speed at which a GPU reads its memory.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// Reads `bytes` (a multiple of 16) once; `result` gets a word that depends on all of them, so that no read is
// left out.
void read_all(const void* memory, int64_t bytes, uint32_t* result, Stream stream);

}  // namespace quintet::kernels::cuda
