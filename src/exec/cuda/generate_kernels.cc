// Text generation: caches, attention to them, choosing tokens.
#include <vector>

#include "exec/cuda/kernel.h"
#include "exec/cuda/libraries.h"
#include "exec/decode/generate.h"
#include "kernels/cuda/generate/generate.h"
#include "program/cache_ops.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

void cached_attention(const Bound& b, bool) {
  auto* const counters = reinterpret_cast<uint32_t*>(const_cast<std::byte*>(b.constants));
  decode::cached_attention(b, [&]<class T>(T, const kernels::CachedAttention& a, const T* q, const T* keys,
                                           const T* values, T* k_cache, T* v_cache, T* o, std::byte*) {
    k::cached_attention<T>(a, q, keys, values, k_cache, v_cache, o, b.workspace, counters, b.stream);
  });
}

void prepare_cached_attention(Bound& b) {
  if (b.instr->out.size() > 3)
    base::fail_user(
        "generating text with attention sinks (model.attention_sinks) is not supported on CUDA yet; use "
        "--device cpu");
  const auto count = k::cached_attention_counters(decode::cached_attention_sizes(*b.instr));
  const std::vector<uint32_t> zeros(static_cast<size_t>(count), 0);
  b.constants = b.libraries->upload(std::as_bytes(std::span(zeros)));
}

void cache_append(const Bound& b, bool) {
  k::AppendRows list[2];
  int count = 0;
  int64_t tokens = 0;
  kernels::PagedRows pages;
  decode::cache_append(
      b, [&](std::byte* rows, int64_t n, int64_t bytes, int64_t, const kernels::PagedRows& at, const int32_t*,
             const int32_t*, std::byte* cache) {
        list[count++] = {rows, cache, bytes};
        tokens = n;
        pages = at;
      });
  k::cache_append(list, count, tokens, pages, b.input<int32_t>(1), b.input<int32_t>(2), b.stream);
}

}  // namespace

const std::vector<Kernel>& generate_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kCacheAppend, cache_append},
      {&graph::kCachedAttention, cached_attention, prepare_cached_attention},
      {&graph::kTakeRows,
       [](const Bound& b, bool) { decode::take_rows(b, [&](auto... a) { k::take_rows(a..., b.stream); }); }},
      {&graph::kSample,
       [](const Bound& b, bool) {
         decode::sample(b, [&]<class T>(T, auto... a) { k::sample<T>(a..., b.stream); });
       }},
      {&graph::kLogProb,
       [](const Bound& b, bool) {
         decode::log_prob(b, [&]<class T>(T, auto... a) { k::log_prob<T>(a..., b.stream); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cuda
