// Rotary position embedding in the half-split convention (element d is paired with d + rotated / 2).
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// For each token t, head h and d < rotated / 2, with angle a = positions[t] * inv_freq[d], c = cos(a) * scale
// and s = sin(a) * scale:
//   y[d] = x[d] * c - x[d + rotated/2] * s,   y[d + rotated/2] = x[d + rotated/2] * c + x[d] * s
// The elements of a head from `rotated` on (0: head_dim) are copied.
// `inverse` rotates by -a with the same scale: it is the backward pass. Rows of consecutive tokens are
// x_stride (y_stride) elements apart, heads are contiguous within a row: for a packed QKV row, the heads of Q
// and K are one call. y may be x. Angles are computed and reduced in double; for T = float and below, cosine
// and sine are evaluated in float. head_dim and rotated are even.
template <class T>
void rope(const T* x, int64_t x_stride, const int32_t* positions, const double* inv_freq, double scale, T* y,
          int64_t y_stride, int64_t tokens, int64_t heads, int64_t head_dim, bool inverse, Stream stream,
          int64_t rotated = 0);

}  // namespace quintet::kernels::cuda
