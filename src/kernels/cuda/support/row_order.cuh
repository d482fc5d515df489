// base::RowOrder::row_in_whole on the device, for a buffer that holds the rows of all ranks.
#pragma once

#include "base/row_order.h"

namespace quintet::kernels::cuda {

struct WholeRows {
  int64_t seq_len, sequences, ranks, length;

  explicit WholeRows(const base::RowOrder& r)
      : seq_len(r.seq_len), sequences(r.sequences), ranks(r.ranks), length(r.run_length()) {}

  __device__ __forceinline__ int64_t row(int64_t sequence, int64_t position) const {
    if (ranks == 1) return sequence * seq_len + position;
    const int64_t index = position / length;
    const bool second = index >= ranks;
    const int64_t at = second ? 2 * ranks - 1 - index : index;
    return ((at * sequences + sequence) * 2 + (second ? 1 : 0)) * length + position % length;
  }
  __device__ __forceinline__ int64_t sequence_of(int64_t row) const {
    return row / (seq_len / ranks) % sequences;
  }
};

}  // namespace quintet::kernels::cuda
