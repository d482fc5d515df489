// Text generation: caches, attention to them, choosing tokens.
#include "exec/cpu/kernel.h"
#include "exec/decode/generate.h"
#include "kernels/cpu/generate/cached_attention.h"
#include "kernels/cpu/generate/sample.h"
#include "program/cache_ops.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

}  // namespace

const std::vector<Kernel>& generate_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kCacheAppend,
       [](const Bound& b, bool) {
         decode::cache_append(b, [&](auto... a) { k::cache_append(a..., *b.pool); });
       }},
      {&graph::kCachedAttention,
       [](const Bound& b, bool) {
         decode::cached_attention(
             b, [&]<class T>(T, const kernels::CachedAttention& a, const T* q, const T* keys, const T* values,
                             T* k_cache, T* v_cache, T* o, std::byte* lse) {
               const auto append = [&](const T* rows, int64_t width, int64_t stride, T* cache) {
                 k::cache_append(reinterpret_cast<const std::byte*>(rows), a.tokens,
                                 width * int64_t{sizeof(T)}, stride * int64_t{sizeof(T)}, a.pages,
                                 a.sequences, a.positions, reinterpret_cast<std::byte*>(cache), *b.pool);
               };
               append(keys, a.kv_heads * a.d, a.k_row, k_cache);
               append(values, a.kv_heads * a.dv, a.v_row, v_cache);
               k::cached_attention<T>(a, q, k_cache, v_cache, o, b.workspace, *b.pool,
                                      reinterpret_cast<k::Stat<T>*>(lse));
             });
       }},
      {&graph::kTakeRows,
       [](const Bound& b, bool) { decode::take_rows(b, [&](auto... a) { k::take_rows(a...); }); }},
      {&graph::kSample,
       [](const Bound& b, bool) {
         decode::sample(b, [&]<class T>(T, auto... a) { k::sample<T>(a..., b.workspace, *b.pool); });
       }},
      {&graph::kLogProb,
       [](const Bound& b, bool) {
         decode::log_prob(b, [&]<class T>(T, auto... a) { k::log_prob<T>(a...); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cpu
