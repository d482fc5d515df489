// A stable radix sort of (key, value) pairs by the low bits of the key, for some ten thousand keys.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace quintet::kernels::cuda {

// Sorts by the lowest `bits` bits of the keys. Each of the two buffers holds n pairs, the input lies in
// `from`; returns the buffer that holds the result, `from` or `other`. The workspace has
// sort_workspace_bytes(n) for the counts of digits.
SortPair* sort_pairs(SortPair* from, SortPair* other, int64_t n, int bits, void* workspace, Stream stream);

}  // namespace quintet::kernels::cuda
