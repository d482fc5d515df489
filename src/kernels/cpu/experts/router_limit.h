// Which assignments are dropped when experts have a capacity.
#pragma once

#include "base/row_order.h"
#include "kernels/cpu/support/types.h"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cpu {

// kept[rows, k] = chosen, or -1 where it is dropped; a negative choice stays negative. Ties of weights (equal
// when rounded to kTieBits) and the meaning of "first" are decided by (sequence, position, choice). Weights
// are double or float, of any value.
int64_t limit_workspace_bytes(const LimitShape& s);
template <class S>
void limit(const LimitShape& s, const int32_t* chosen, const S* weights, int32_t* kept, void* workspace,
           ThreadPool& pool);

// weights[r, j] = (w + 1/2) / 2^32, w being word (j & 3) of philox(key, counter words {j >> 2, positions[r],
// samples[r], 0}).
void random_weights(const int32_t* samples, const int32_t* positions, uint64_t key, double* weights,
                    int64_t rows, int64_t k, ThreadPool& pool);

}  // namespace quintet::kernels::cpu
