// The parts of the scratch of attention through cuDNN: ours lies before the library's.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace quintet::kernels::cuda {

int64_t attention_own_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward);

// What the library's own scratch comes to at most for some sequences and query heads, whatever part of them
// meets which part of the keys, by what its graph keeps: the sums of dout * o, dq in f32, dk and dv of every
// query head where KV heads are shared; deterministic, the scores.
int64_t attention_library_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward,
                                int64_t sequences, int64_t heads);

// What AttentionHops keeps before the library's own scratch, in bytes from the start: the library's o and
// lse, or its share of dq; and where rows do not ascend, everything that it reads and writes in the order in
// which they do. The same for every hop and ring rank.
struct HopScratch {
  bool sorts = false;
  int64_t o = 0, lse = 0;  // forward: results; backward: operands, sorted
  int64_t q = 0, k = 0, v = 0, documents = 0, dout = 0;
  int64_t dq = 0, dk = 0, dv = 0;
  int64_t bytes = 0;
};
HopScratch hop_scratch(const AttentionShape& shape, bool backward);
// Of o, or dq, of the hops before, where all hops are made in one call.
int64_t running_bytes(const AttentionShape& shape, bool backward);

// Of attention/segments.cuh's Segments: the arrays of the struct, and where segments start and end.
constexpr int64_t segments_bytes(int64_t most) {
  return (3 * most + 5 * (most + 1) + 1) * int64_t{sizeof(int32_t)};
}

}  // namespace quintet::kernels::cuda
