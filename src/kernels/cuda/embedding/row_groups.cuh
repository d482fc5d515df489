// Tokens brought side by side by the row of the table that they look up: the first half of the embedding's
// gradient.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/cuda_scratch/sizes.h"

namespace quintet::kernels::cuda {

// Rows are dealt to buckets by their low bits, so that frequent ids, which are often neighbours, spread.
struct RowGroups {
  int bits;           // of a row that name its bucket
  RowToken* by_row;   // [tokens], in an order that the ids alone decide; those behind *used are not written
  uint32_t* used;     // how many tokens lie in the shard
  uint32_t* present;  // [bucket, kEmbeddingBucketRows bits]: which rows have tokens

  __device__ uint32_t bucket_of(uint32_t row) const { return row & ((1u << bits) - 1); }
  __device__ bool has_tokens(uint32_t row) const {
    const uint32_t at = row >> bits;
    return (present[bucket_of(row) * (kEmbeddingBucketRows / 32) + at / 32] >> (at % 32) & 1) != 0;
  }
};

struct ShardIds {
  const int32_t* ids;
  uint32_t tokens, vocab_begin, vocab_local;
};

// Fills what `to` points to, in one launch, which also zeroes `counters`.
void group_by_row(const ShardIds& in, const RowGroups& to, uint32_t* counters, int64_t counter_count,
                  Stream stream);

}  // namespace quintet::kernels::cuda
