// Tokens sorted by the table row that they look up, so that those of a row are contiguous: the first half of
// the embedding's gradient.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/cuda_scratch/sizes.h"

namespace quintet::kernels::cuda {

// Rows are assigned to buckets by their low bits, so that frequent ids, which are often neighbours, spread.
struct RowGroups {
  int bits;           // of a row that select its bucket
  RowToken* by_row;   // [tokens], in an order fixed by the ids; those past *used are not written
  uint32_t* used;     // number of tokens in the shard
  uint32_t* present;  // [bucket, kEmbeddingBucketRows bits]: rows with tokens

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
