// The scales of codes, found from the magnitudes of earlier steps (kernels/cpu/quantize/quantize.h).
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// Row s of the history has `length` magnitudes. Scale s becomes the largest power of two that keeps them at
// most largest[s], or initial[s] while all are 0; scale n + s its reciprocal. Scales are `stride` floats
// apart, with zeros between them.
void delayed_scales(const double* history, int64_t length, const double* largest, const double* initial,
                    int64_t n, float* scales, int64_t stride, Stream stream);

// Entry (count - 1) mod length of each row of the history becomes the largest of the amaxes i with rows[i] =
// that row, or 0 if one of them is not finite; nothing happens if *ok is 0.
void record_amax(const double* amax, const int64_t* rows, int64_t count, const double* ok,
                 const double* update_count, int64_t length, int64_t num_rows, double* history,
                 Stream stream);

}  // namespace quintet::kernels::cuda
