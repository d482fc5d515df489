// How kernels/cuda splits its work where the split decides the scratch: functions of the sizes alone, free
// of vendor headers, so that builds without CUDA plan the same bytes. Both the kernel launches and the
// *_workspace_bytes() of kernels/cuda/*.h, defined in this folder, use them.
#pragma once

#include <cstdint>

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t aligned(int64_t bytes) {
  return divide_up(bytes, kWorkspaceAlignment) * kWorkspaceAlignment;
}

// Sums over rows (column_reduce.cuh): chunks of at least 32 rows; with the column tiles about a thousand
// blocks.
constexpr int64_t column_chunks(int64_t rows, int64_t n) {
  const int64_t most = 1056 / ((n + 255) / 256 + (n == 0)), chunks = rows / 32 < most ? rows / 32 : most;
  return chunks < 1 ? 1 : chunks;
}

// The maximum number of blocks of a norm's fused backward pass, each with one partial sum: three for each of
// 160 multiprocessors, whether they are resident at once or not.
inline constexpr int64_t kNormPartials = 480;

inline constexpr int64_t kReduceChunk = 32768;  // elements per partial sum of a flat reduction

// Distribution of items to columns (columns.cuh): blocks of kDealThreads, at most kDealChunks of them, each
// with an equal number of items and counts of all columns.
inline constexpr int kDealThreads = 1024, kDealColumns = 512;
inline constexpr int64_t kDealChunks = 128;
constexpr int64_t deal_chunk(int64_t items) {
  const int64_t rounds = divide_up(items, kDealThreads * kDealChunks);
  return (rounds < 1 ? 1 : rounds) * kDealThreads;
}
constexpr int64_t deal_chunks(int64_t items) {
  const int64_t chunks = divide_up(items, deal_chunk(items));
  return chunks < 1 ? 1 : chunks;
}
constexpr int64_t deal_bytes(int64_t items, int64_t columns) {
  return deal_chunks(items) * columns * int64_t{sizeof(uint32_t)};
}

// Pairs are distributed to tiles of experts, with one more column for all lower tiles.
inline constexpr int kRouteTile = kDealColumns - 1;
constexpr int64_t route_tiles(int64_t experts) { return experts > 0 ? divide_up(experts, kRouteTile) : 1; }
constexpr int64_t route_columns(int64_t experts) { return (experts < kRouteTile ? experts : kRouteTile) + 1; }

// Where experts have a capacity, pairs are stored contiguously by this many columns: all pairs of an expert
// are in one column, which other experts may share.
inline constexpr int kLimitColumns = 128;
struct LimitPair {
  uint32_t place;  // index in chosen, weights and kept
  uint32_t expert;
};
struct LimitColumn {
  uint32_t start, count;  // range of its pairs within the group's
};

// Tokens of the embedding's gradient; those of one table row are contiguous at [begin, end). Rows are
// distributed to at least 128 buckets by their low bits. Long rows are summed in segments of
// kEmbeddingSegment tokens, by blocks of kEmbeddingThreads.
struct alignas(16) RowToken {
  uint32_t token, row, begin, end;
};
inline constexpr int kEmbeddingSegment = 32, kEmbeddingThreads = 128;
inline constexpr int64_t kEmbeddingBucketRows = 1024;  // at most
constexpr int embedding_bucket_bits(int64_t vocab_local) {
  int bits = 7;
  while (vocab_local > kEmbeddingBucketRows << bits) ++bits;
  return bits;
}
// In this order, each aligned; followed by two rows of partial sums per segment.
struct EmbeddingScratch {
  int64_t by_row_bytes;   // the tokens
  int64_t used_bytes;     // their number
  int64_t present_bytes;  // one bit per row of every bucket
  int64_t arrived_bytes;  // one count per segment and slab of columns
};
constexpr EmbeddingScratch embedding_scratch(int64_t tokens, int64_t vocab_local, int64_t n) {
  const int64_t word = sizeof(uint32_t);
  return {.by_row_bytes = tokens * int64_t{sizeof(RowToken)},
          .used_bytes = word,
          .present_bytes = (kEmbeddingBucketRows << embedding_bucket_bits(vocab_local)) / 8,
          .arrived_bytes = divide_up(tokens, kEmbeddingSegment) * divide_up(n, kEmbeddingThreads) * word};
}

// Chunks of rows, summed by one block each: sums over tokens for the balance losses.
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
