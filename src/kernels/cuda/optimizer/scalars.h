// Kernels on the scalars of a step, all doubles in device memory, and copies of whole buffers.
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
  double* overflows = nullptr;  // null with a hysteresis of 1
};

// How the loss scale follows overflows.
struct ScaleRule {
  int64_t window = 0;  // 0: the loss scale is constant
  double least = 1;
  int64_t hysteresis = 1;
};

// norm = sqrt(sum_squares) / loss_scale; with `largest`, sum_squares is the largest absolute element and
// norm = sum_squares / loss_scale.
// clip_scale = c / loss_scale, with c = max_norm / norm if max_norm > 0 and norm > max_norm, else 1.
// ok = norm and loss are finite and, with a guard, norm and loss / count do not exceed their limits.
// A step with ok counts as an update and resets skipped_in_row; any other counts as skipped.
//
// With a window the loss scale is halved after non-finite steps, from the hysteresis-th since it was last
// doubled on, down to `least`, and doubled after `window` finite ones in a row; a skipped step that a
// smaller scale may cure (finite loss, scale above `least`) does not count towards skipped_in_row.
void clip_scale(const ClipScalars& s, double max_norm, const ScaleRule& rule, bool largest, Stream stream);

// *key = words 0 and 1 of base::philox(*seed, salt): the key of one dropout.
void derive_key(const int64_t* seed, uint64_t salt, uint64_t* key, Stream stream);

// y = *factor * x; S is double or float, the product is formed in S.
template <class S>
void scale_by(const S* x, const double* factor, S* y, int64_t n, Stream stream);

// Device to device; the ranges must not overlap unless they are identical.
void copy(const void* x, void* y, int64_t bytes, Stream stream);
// The first `bytes` of each row; rows are `stride` bytes apart.
void copy_rows(const void* x, void* y, int64_t rows, int64_t bytes, int64_t stride, Stream stream);

}  // namespace quintet::kernels::cuda
