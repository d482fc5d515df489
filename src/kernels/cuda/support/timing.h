// Time of work on a stream, for choosing among implementations before training.
#pragma once

#include <functional>

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// Microseconds of one launch(), from `repeats` of them in a row. Waits for the stream.
double microseconds_of(const std::function<void()>& launch, int repeats, Stream stream);

// Values in (-1, 1) of any floating-point type: zeros would run faster than real data.
void fill_noise(void* y, base::DType type, int64_t n, Stream stream);

}  // namespace quintet::kernels::cuda
