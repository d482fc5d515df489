// The parts of the scratch of attention through cuDNN: ours lies before the library's.
#pragma once

#include "kernels/cuda/attention.h"

namespace quintet::kernels::cuda {

int64_t attention_own_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward);

// What the library's own scratch comes to for some sequences and query heads, by what its graph keeps: the
// sums of dout * o, dq in f32, dk and dv of every query head where KV heads are shared; deterministic, the
// scores.
int64_t attention_library_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward,
                                int64_t sequences, int64_t heads);

// Of attention_segments.cuh's Segments: the arrays of the struct, and where segments start and end.
constexpr int64_t segments_bytes(int64_t most) {
  return (3 * most + 5 * (most + 1) + 1) * int64_t{sizeof(int32_t)};
}

}  // namespace quintet::kernels::cuda
