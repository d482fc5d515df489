#include "kernels/cpu/generate/cached_attention.h"

#include "kernels/cpu/support/isa.h"

namespace quintet::kernels::cpu {

QUINTET_SELECT_VARIANT(cached_attention_variants, CachedAttentionVariants)

template <class T>
void cached_attention(const CachedAttention& a, const T* q, const T* k_cache, const T* v_cache, T* o,
                      std::byte* workspace, ThreadPool& pool, Stat<T>* lse) {
  variants<T>().cached_attention(a, q, k_cache, v_cache, o, workspace, pool, lse);
}

// Per thread: the scores of a query over all positions, and its result.
int64_t cached_attention_workspace_bytes(const CachedAttention& a, int threads) {
  return threads * (a.pages.page_rows * a.pages.pages_per_sequence + a.dv) * int64_t{sizeof(double)};
}

#define INSTANTIATE(T) template decltype(cached_attention<T>) cached_attention<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
