// Rows of a cache in pages (graph/ops/cache.cc), for host and device.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define QUINTET_PAGED __host__ __device__ __forceinline__
#else
#define QUINTET_PAGED inline
#endif

namespace quintet::kernels {

struct PagedRows {
  const int32_t* table = nullptr;  // [sequences, pages_per_sequence]; -1: no page
  int64_t page_rows = 0, pages_per_sequence = 0;

  // The row of the cache that holds a position of a sequence; -1: none.
  QUINTET_PAGED int64_t row(int32_t sequence, int64_t position) const {
    if (sequence < 0 || position < 0 || position >= page_rows * pages_per_sequence) return -1;
    const int32_t page = table[sequence * pages_per_sequence + position / page_rows];
    return page < 0 ? -1 : page * page_rows + position % page_rows;
  }
};

// What a query sees, and how its scores are formed.
struct CachedScores {
  int64_t window = 0;  // 0: all
  double scale = 1, soft_cap = 0;
  int64_t chunk = 0;  // above 0: positions of the query's own chunk of so many
  QUINTET_PAGED int64_t first_key(int64_t position) const {
    if (chunk > 0) return position - position % chunk;
    return window > 0 && position + 1 > window ? position + 1 - window : 0;
  }
};

// The arguments of attention to a cache, apart from its tensors.
struct CachedAttention {
  int64_t tokens = 0, heads = 0, kv_heads = 0, d = 0, dv = 0;
  int64_t q_row = 0, k_row = 0, v_row = 0;  // elements between rows of q, k and v
  PagedRows pages = {};
  CachedScores scores = {};
  const int32_t* sequences = nullptr;
  const int32_t* positions = nullptr;
};

// How a token is chosen (graph/ops/cache.cc).
struct SampleRule {
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 1, min_p = 0, repetition_penalty = 1;
  uint64_t key = 0;
  int64_t vocab = 0;  // tokens that may be chosen: the first ones
};

// The cached ids of a sequence; ids null: no penalty.
struct History {
  const int32_t* ids = nullptr;
  PagedRows pages = {};
  const int32_t* sequences = nullptr;
};

}  // namespace quintet::kernels
