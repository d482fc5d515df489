// Dropout and jitter, whose random numbers depend on an element's global indices only, so that every sharding
// draws the same.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// y[t, f] = keep ? x[t, f] / (1 - p) : 0, where with F = feature_offset + f the element is kept when word (F
// & 3) of philox(*key, counter words {F >> 2, positions[t], samples[t], 0}) is at least p * 2^32: the same
// mask as on the CPU. The backward pass is the same function on dy. 0 <= p < 1. y may alias x.
template <class T>
void dropout(const T* x, const int32_t* samples, const int32_t* positions, const uint64_t* key, double p,
             int64_t feature_offset, T* y, int64_t tokens, int64_t n, Stream stream);

// y[t, f] = x[t, f] * (1 + eps * u) with u = (2 w + 1) / 2^24 - 1, w being the upper 24 bits of the element's
// word: the numbers of the CPU. 0 <= eps < 1. y may alias x.
template <class T>
void jitter(const T* x, const int32_t* samples, const int32_t* positions, const uint64_t* key, double eps,
            int64_t feature_offset, T* y, int64_t tokens, int64_t n, Stream stream);

}  // namespace quintet::kernels::cuda
