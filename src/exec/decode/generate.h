// Arguments of text generation, for the kernels of every backend (see exec/decode/sizes.h).
#pragma once

#include "exec/decode/sizes.h"
#include "kernels/paged_rows.h"

namespace quintet::exec::decode {

// The table is sequences x pages_per_sequence; a cache is [pages, page_rows, ...].
inline kernels::PagedRows paged(const int32_t* table, const graph::Type& cache, int64_t pages_per_sequence) {
  return {.table = table, .page_rows = cache.size(1), .pages_per_sequence = pages_per_sequence};
}

// k_cache, v_cache, table, sequences, positions, then q, k and v, or the three packed -> o, caches. Sizes
// without addresses.
inline kernels::CachedAttention cached_attention_sizes(const program::Instr& i) {
  const graph::Type &k = i.in[0].type, &v = i.in[1].type, &q = i.in[5].type;
  const bool packed = i.in.size() == 6;
  kernels::CachedAttention a{
      .tokens = q.size(0),
      .heads = packed ? i.attrs.integer("heads") : q.size(1),
      .kv_heads = k.size(2),
      .d = q.size(2),
      .dv = v.size(3),
      .q_row = columns(q),
      .k_row = packed ? columns(q) : columns(i.in[6].type),
      .v_row = packed ? columns(q) : columns(i.in[7].type),
      .pages = paged(nullptr, k, i.attrs.integer("pages_per_sequence")),
      .scores = {.window = i.attrs.integer("window"),
                 .scale = i.attrs.real("scale"),
                 .soft_cap = i.attrs.find("soft_cap") != nullptr ? i.attrs.real("soft_cap") : 0,
                 .chunk = i.attrs.find("chunk") != nullptr ? i.attrs.integer("chunk") : 0},
      .sequences = nullptr,
      .positions = nullptr};
  return a;
}

// The kernel gets sizes, q, k, v, the caches, o, and where lse is stored, or null.
template <class K>
void cached_attention(const Operands& b, K&& kernel) {
  kernels::CachedAttention a = cached_attention_sizes(*b.instr);
  QUINTET_CHECK(b.in[0] == b.out[1] && b.in[1] == b.out[2], "cached_attention stores in place");
  a.pages.table = b.input<int32_t>(2);
  a.sequences = b.input<int32_t>(3);
  a.positions = b.input<int32_t>(4);
  with_type(b.in_type(5).dtype, [&]<class T>(T t) {
    T* const q = b.input<T>(5);
    T* const k = b.in.size() == 6 ? q + a.heads * a.d : b.input<T>(6);
    T* const v = b.in.size() == 6 ? k + a.kv_heads * a.d : b.input<T>(7);
    kernel(t, a, q, k, v, b.input<T>(0), b.input<T>(1), b.output<T>(0),
           b.out.size() > 3 ? b.out[3] : nullptr);
  });
}

// table, sequences, positions, (rows, cache)... -> caches. Calls `kernel` once per cache.
template <class K>
void cache_append(const Operands& b, K&& kernel) {
  for (size_t i = 3; i < b.in.size(); i += 2) {
    const graph::Type &rows = b.in_type(i), &cache = b.in_type(i + 1);
    QUINTET_CHECK(b.in[i + 1] == b.out[(i - 3) / 2], "cache_append works in place");
    kernel(b.in[i], rows.size(0), row_bytes(rows), row_bytes(rows),
           paged(b.input<int32_t>(0), cache, b.instr->attrs.integer("pages_per_sequence")),
           b.input<int32_t>(1), b.input<int32_t>(2), b.in[i + 1]);
  }
}

template <class K>
void take_rows(const Operands& b, K&& kernel) {  // x, rows -> y
  kernel(b.in[0], b.input<int32_t>(1), b.in_type(1).size(0), row_bytes(b.in_type(0)), b.out[0]);
}

inline kernels::SampleRule sample_rule(const graph::Attrs& a) {
  return {.temperature = a.real("temperature"),
          .top_k = a.integer("top_k"),
          .top_p = a.real("top_p"),
          .min_p = a.real("min_p"),
          .repetition_penalty = a.real("repetition_penalty"),
          .key = static_cast<uint64_t>(a.integer("key")),
          .vocab = a.integer("vocab")};
}

// logits, samples, positions and, with a penalty, cached ids, table, sequences -> ids
template <class K>
void sample(const Operands& b, K&& kernel) {
  const graph::Type& logits = b.in_type(0);
  kernels::History history;
  if (b.in.size() > 3)
    history = {
        .ids = b.input<int32_t>(3),
        .pages = paged(b.input<int32_t>(4), b.in_type(3), b.instr->attrs.integer("pages_per_sequence")),
        .sequences = b.input<int32_t>(5)};
  with_type(logits.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), logits.size(0), logits.size(1), sample_rule(b.instr->attrs), b.input<int32_t>(1),
           b.input<int32_t>(2), history, b.output<int32_t>(0));
  });
}

template <class K>
void log_prob(const Operands& b, K&& kernel) {  // max, pairs (two arrays), labels -> log-probabilities
  const int64_t rows = b.in_type(0).size(0);
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>)
      kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(1) + rows, b.input<int32_t>(2), rows,
             b.output<T>(0));
    else
      base::fail_internal("log_prob of a half type");
  });
}

}  // namespace quintet::exec::decode
