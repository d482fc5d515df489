#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// Codes of numbers spread evenly over the range of a format: operands for timing. n is a multiple of 8.
void fill_noise_codes(void* codes, base::DType format, int64_t n, Stream stream);

}  // namespace quintet::kernels::cuda
