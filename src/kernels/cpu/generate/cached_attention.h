// Attention of single rows to a cache of keys and values.
#pragma once

#include <cstddef>

#include "kernels/cpu/support/types.h"
#include "kernels/paged_rows.h"

namespace quintet::kernels::cpu {

// The rows that are new are in the cache already. o[t, h] = softmax over the positions that row t sees of
// q[t, h] . k, times v; lse[h, t], where it is wanted, the logarithm of the softmax's denominator. A row of
// no sequence gives zeros. The bits of a row do not depend on the other rows.
template <class T>
void cached_attention(const CachedAttention& a, const T* q, const T* k_cache, const T* v_cache, T* o,
                      std::byte* workspace, ThreadPool& pool, Stat<T>* lse = nullptr);
int64_t cached_attention_workspace_bytes(const CachedAttention& a, int threads);

// The builds per instruction set (support/isa.h).
template <class T>
struct CachedAttentionVariants {
  decltype(&cpu::cached_attention<T>) cached_attention;
};

}  // namespace quintet::kernels::cpu
