// Text generation on a GPU: kernels/cpu/generate with the same meaning.
#pragma once

#include "kernels/cuda/support/types.h"
#include "kernels/paged_rows.h"

namespace quintet::kernels::cuda {

// Unlike the CPU's, it also stores k and v, the new rows, in the caches. In bf16 with d = dv = 64 or 128 on
// tensor cores: keys are read once for up to 16 query heads, in splits whose results are merged by the last
// block to finish, in order; the bits of a row do not depend on the other rows. All other cases take one
// block per row and head. `counters` are cached_attention_counters() words, zero before the first call and
// after every call. In a captured graph the cache, the table, sequences and positions are read while the
// previous kernel still runs: no kernel of the graph may write them.
inline constexpr int64_t kDecodeSplitKeys = 256, kMaxDecodeSplits = 32;
// Keys of a split where a row sees so many cached ones.
QUINTET_PAGED int64_t decode_split_keys(int64_t keys) {
  const int64_t most = kDecodeSplitKeys * kMaxDecodeSplits;
  return kDecodeSplitKeys * (keys > most ? (keys + most - 1) / most : 1);
}
int64_t decode_splits(const CachedAttention& a);  // at most, of a row
template <class T>
void cached_attention(const CachedAttention& a, const T* q, const T* k, const T* v, T* k_cache, T* v_cache,
                      T* o, void* workspace, uint32_t* counters, Stream stream);
bool decodes_in_splits(const CachedAttention& a, bool bf16);
int64_t cached_attention_workspace_bytes(const CachedAttention& a, bool bf16, int64_t stat_bytes);
int64_t cached_attention_counters(const CachedAttention& a);

// Rows of up to two caches at once.
struct AppendRows {
  const std::byte* rows = nullptr;
  std::byte* cache = nullptr;
  int64_t bytes = 0;  // of a row
};
void cache_append(const AppendRows* list, int count, int64_t tokens, const PagedRows& pages,
                  const int32_t* sequences, const int32_t* positions, Stream stream);

void take_rows(const std::byte* x, const int32_t* rows, int64_t count, int64_t bytes, std::byte* out,
               Stream stream);

// Probabilities are f32, their sums integers in units of 2^-32 of the largest.
template <class T>
void sample(const T* logits, int64_t tokens, int64_t columns, const SampleRule& rule, const int32_t* samples,
            const int32_t* positions, const History& history, int32_t* ids, Stream stream);

template <class S>
void log_prob(const S* max, const S* sum, const S* label_logit, const int32_t* labels, int64_t tokens, S* out,
              Stream stream);

}  // namespace quintet::kernels::cuda
