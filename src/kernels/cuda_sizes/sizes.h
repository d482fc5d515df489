// How kernels/cuda cuts its work where the cut decides the scratch: functions of the sizes alone, without a
// vendor's header, so that builds without CUDA plan the same bytes. The kernels launch by these, and the
// *_workspace_bytes() of kernels/cuda/*.h, defined in this folder, count by them.
#pragma once

#include <cstdint>

#include "kernels/cuda/types.h"

namespace quintet::kernels::cuda {

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t aligned(int64_t bytes) {
  return divide_up(bytes, kWorkspaceAlignment) * kWorkspaceAlignment;
}

// Sums over rows (column_reduce.cuh): chunks of at least 32 rows, about a thousand blocks together with the
// tiles of columns.
constexpr int64_t column_chunks(int64_t rows, int64_t n) {
  const int64_t most = 1056 / ((n + 255) / 256 + (n == 0)), chunks = rows / 32 < most ? rows / 32 : most;
  return chunks < 1 ? 1 : chunks;
}

// The most blocks that a norm's fused backward pass is given, each with one partial sum: two on each of 160
// multiprocessors.
inline constexpr int64_t kNormPartials = 320;

inline constexpr int64_t kReduceChunk = 32768;  // elements of one partial sum of a whole array

// A block of a sort has this many pairs, and counts this many digits.
inline constexpr int kSortBlock = 1024, kSortDigits = 256;
struct SortPair {
  uint32_t key;
  uint32_t value;
};
constexpr int64_t sort_workspace_bytes(int64_t n) {
  return divide_up(n, kSortBlock) * kSortDigits * int64_t{sizeof(uint32_t)};
}

// Tokens of the embedding's gradient, those of one row of the table side by side at [begin, end). A block
// sums a tile of them, over kEmbeddingThreads packs of columns, and has two rows of partial sums.
struct alignas(16) RowToken {
  uint32_t token, row, begin, end;
};
inline constexpr int kEmbeddingTile = 16, kEmbeddingThreads = 128;

// Chunks of rows that are summed by a block each: sums over tokens of the balance between experts.
constexpr int64_t balance_chunks(int64_t rows) {
  const int64_t chunks = rows / 64;
  return chunks < 1 ? 1 : chunks > 128 ? 128 : chunks;
}
// Chunks of rows of the router's weight gradient.
constexpr int64_t router_chunks(int64_t rows) {
  const int64_t chunks = rows / 512;
  return chunks < 1 ? 1 : chunks > 32 ? 32 : chunks;
}

}  // namespace quintet::kernels::cuda
