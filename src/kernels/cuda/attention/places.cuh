// The order of context ranks' rows, and which of them take part in a hop.
#pragma once

#include "kernels/attention_part.h"
#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// For a row in Quintet's order: its index in ascending order (kernels/attention_part.h), and whether it takes
// part. Row indices are below 2^31.
struct Places {
  uint32_t sequences, length, ranks;  // length of a run; ranks in the buffer
  uint32_t first, count, pitch;       // AttentionPart::Rows

  Places(const base::RowOrder& order, const AttentionPart::Rows& part)
      : sequences(static_cast<uint32_t>(order.sequences)),
        length(static_cast<uint32_t>(order.run_length())),
        ranks(static_cast<uint32_t>(order.count)),
        first(static_cast<uint32_t>(part.first)),
        count(static_cast<uint32_t>(part.count)),
        pitch(static_cast<uint32_t>(part.pitch)) {}

  // Quintet's: [rank][sequence][two chunks]. Ascending: [sequence][early chunks, late ones by falling rank].
  __device__ __forceinline__ uint32_t of(uint32_t row) const {
    if (ranks == 1) return row;
    const uint32_t chunk = row / length, pair = chunk / 2, rank = pair / sequences;
    const uint32_t run = chunk % 2 == 0 ? rank : 2 * ranks - 1 - rank;
    return (pair % sequences * (2 * ranks) + run) * length + row % length;
  }
  __device__ __forceinline__ bool has(uint32_t place) const {
    return place % pitch - first < count;  // below first: wraps around
  }
};

}  // namespace quintet::kernels::cuda
