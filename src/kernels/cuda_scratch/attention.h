// Layout of the scratch of attention through cuDNN: Quintet's part precedes the library's.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace quintet::kernels::cuda {

int64_t attention_own_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward);

// Upper bound of cuDNN's own scratch for a number of sequences and query heads, for every combination of
// their rows and keys, derived from what its graph keeps: the sums of dout * o, dq in f32, dk and dv of every
// query head where KV heads are shared; the scores when deterministic.
int64_t attention_library_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward,
                                int64_t sequences, int64_t heads);

// What AttentionHops stores before cuDNN's own scratch, as byte offsets from the start: cuDNN's o and lse, or
// its contribution to dq; and where rows do not ascend, sorted copies of everything that it reads and writes.
// The same for every hop and ring rank.
struct HopScratch {
  bool sorts = false;
  int64_t o = 0, lse = 0;  // forward: results; backward: operands, sorted
  int64_t q = 0, k = 0, v = 0, documents = 0, dout = 0;
  int64_t dq = 0, dk = 0, dv = 0;
  int64_t bytes = 0;
};
HopScratch hop_scratch(const AttentionShape& shape, bool backward);
// Bytes of the o, or dq, of earlier hops, where all hops run in one call.
int64_t running_bytes(const AttentionShape& shape, bool backward);

// Bytes of Segments (attention/segments.cuh): the arrays of the struct, and where segments start and end.
constexpr int64_t segments_bytes(int64_t most) {
  return (3 * most + 5 * (most + 1) + 1) * int64_t{sizeof(int32_t)};
}

}  // namespace quintet::kernels::cuda
