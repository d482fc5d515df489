#include "kernels/cuda/generate/generate.h"

#include <algorithm>

namespace quintet::kernels::cuda {
namespace {

int64_t most_keys(const CachedAttention& a) { return a.pages.page_rows * a.pages.pages_per_sequence; }

}  // namespace

bool decodes_in_splits(const CachedAttention& a, bool bf16) {
  return bf16 && a.d == a.dv && (a.d == 64 || a.d == 128);
}

int64_t decode_splits(const CachedAttention& a) {
  return std::clamp<int64_t>((most_keys(a) + kDecodeSplitKeys - 1) / kDecodeSplitKeys, 1, kMaxDecodeSplits);
}

// In splits: dv + 2 floats for every row, head and split. Otherwise the scores of every row and head.
int64_t cached_attention_workspace_bytes(const CachedAttention& a, bool bf16, int64_t stat_bytes) {
  const int64_t results = a.tokens * a.heads;
  if (!decodes_in_splits(a, bf16)) return results * most_keys(a) * stat_bytes;
  const int64_t splits = decode_splits(a);
  return splits > 1 ? results * splits * (a.dv + 2) * int64_t{4} : 0;
}

int64_t cached_attention_counters(const CachedAttention& a) { return a.tokens * a.heads; }

}  // namespace quintet::kernels::cuda
