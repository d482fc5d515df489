// The scalars of a step, all doubles in device memory, and the moves of whole buffers.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// *seed = *scale / *count, or 0 when nothing was counted.
void count_to_seed(const double* count, const double* scale, double* seed, Stream stream);

struct ClipScalars {
  const double *sum_squares = nullptr, *loss = nullptr;
  const double *count = nullptr, *loss_limit = nullptr,
               *norm_limit = nullptr;  // null: no guard against spikes
  double *norm = nullptr, *clip_scale = nullptr, *ok = nullptr;
  double *update_count = nullptr, *skipped_in_row = nullptr, *skipped_total = nullptr;
  double *loss_scale = nullptr, *good_steps = nullptr;
};

// norm = sqrt(sum_squares) / loss_scale, or with `largest` sum_squares, which then is the largest absolute
// element, over loss_scale; clip_scale = max_norm / norm where max_norm > 0 and the norm is above it, else 1,
// and over loss_scale; ok = whether norm and loss are finite and, with a guard, the norm and loss / count do
// not exceed their limits. A good step is counted as an update and ends a row of skipped ones, a bad one is
// counted as skipped.
//
// With window > 0 the loss scale is halved after a non-finite step, down to 1, and doubled after `window`
// finite ones; a step that this may mend (the loss is finite, the scale above 1) does not count in a row.
void clip_scale(const ClipScalars& s, double max_norm, int64_t window, bool largest, Stream stream);

// *key = the words 0 and 1 of base::philox(*seed, salt): the key of one use of dropout.
void derive_key(const int64_t* seed, uint64_t salt, uint64_t* key, Stream stream);

// y = *factor * x; S is double or float, the product is formed in S.
template <class S>
void scale_by(const S* x, const double* factor, S* y, int64_t n, Stream stream);

// Device memory to device memory; the ranges must not overlap unless they are the same.
void copy(const void* x, void* y, int64_t bytes, Stream stream);
// The first `bytes` of rows that lie `stride` bytes apart.
void copy_rows(const void* x, void* y, int64_t rows, int64_t bytes, int64_t stride, Stream stream);

}  // namespace quintet::kernels::cuda
