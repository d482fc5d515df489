// Places of rows in base::RowOrder when a buffer holds the rows of all ranks (first = 0, count = ranks).
#pragma once

#include "base/row_order.h"

namespace quintet::kernels::cpu {

inline int64_t row_of(const base::RowOrder& order, int64_t sequence, int64_t position) {
  if (order.ranks == 1) return sequence * order.seq_len + position;
  const base::RowOrder::Run run = order.run(sequence, position / (order.seq_len / (2 * order.ranks)));
  return run.row + position - run.position;
}

inline int64_t sequence_of(const base::RowOrder& order, int64_t row) {
  return row / (order.seq_len / order.ranks) % order.sequences;
}

}  // namespace quintet::kernels::cpu
