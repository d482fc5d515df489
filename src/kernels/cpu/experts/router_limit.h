// Which assignments are dropped when experts have a capacity.
#pragma once

#include "base/row_order.h"
#include "kernels/cpu/support/types.h"

namespace quintet::kernels::cpu {

struct LimitShape {
  base::RowOrder order;    // of a buffer that holds the rows of all its ranks
  int64_t k = 0;           // choices per row
  int64_t group = 1;       // consecutive sequences that share a capacity; divides order.sequences
  int64_t capacity = 0;    // (row, choice) pairs per expert and group
  bool by_weight = false;  // keep the largest weights, else the first
};

// Bits of the fraction that count when weights are compared. Tokens with equal context (the blanks at the
// start of a line) have equal weights up to rounding, which depends on the layout; the layout must not decide
// which of them is dropped.
template <class S>
inline constexpr int kTieBits = sizeof(S) == 8 ? 28 : 14;

// kept[rows, k] = chosen, or -1 where it is dropped; a negative choice stays negative. Ties of weights (equal
// when rounded to kTieBits) and the meaning of "first" are decided by (sequence, position, choice). Weights
// are double or float, of any value.
int64_t limit_workspace_bytes(const LimitShape& s);
template <class S>
void limit(const LimitShape& s, const int32_t* chosen, const S* weights, int32_t* kept, void* workspace,
           ThreadPool& pool);

}  // namespace quintet::kernels::cpu
