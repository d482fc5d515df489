#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/embedding/embedding.h"
#include "kernels/cuda/embedding/row_groups.cuh"

namespace quintet::kernels::cuda {
namespace {

// The row within the shard, or -1.
__device__ __forceinline__ int64_t local_row(int32_t id, int64_t vocab_begin, int64_t vocab_local) {
  const int64_t row = id - vocab_begin;
  return id >= 0 && row >= 0 && row < vocab_local ? row : -1;
}

template <class T>
struct Gather {
  const T* table;
  const int32_t* ids;
  int64_t vocab_begin, vocab_local;
  T* y;
  int64_t n;
  template <int V>
  __device__ Pack<T, V> load(int64_t t, int64_t i) const {
    const int64_t row = local_row(ids[t], vocab_begin, vocab_local);
    return row >= 0 ? fetch<V>(table + row * n + i) : packed<T, V>(Vals<Stat<T>, V>{});
  }
  template <int V>
  __device__ void store(int64_t t, int64_t i, Pack<T, V> x) const {
    put<V>(y + t * n + i, x);
  }
};

// Tokens by row are summed in segments: a row of up to kSegment tokens is one, a longer row has one for every
// kSegment of its tokens, counted from its first. A block sums those that begin in its tile of places, over a
// slab of columns. The sum of a single-segment row is written to the table at once. Those of a long row are
// stored as partial sums, and the last of its blocks to finish adds them up in order.
inline constexpr unsigned kSegment = kEmbeddingSegment, kTile = 8;
inline constexpr int kThreads = kEmbeddingThreads, kBlocks = 6;  // per multiprocessor
inline constexpr unsigned kZeroRows = 8;                         // per zeroing block

template <class T, class D>
struct Sums {
  const T* dy;
  RowGroups groups;
  uint32_t tokens;
  int64_t n, vocab_local;
  unsigned slabs;
  unsigned sum_blocks;  // blocks from here on zero the rows without tokens
  D* dtable;
  // Of the segments of long rows that begin in kSegment places, at most one is the first of its row and at
  // most one is not: their partial sums are [place / kSegment, 1 if it is the first, n]. Blocks that have
  // reached a row are counted where it begins, [place / kSegment, slab].
  Stat<T>* partials;
  uint32_t* arrived;
};

// Partial sums of V columns, which may be more than one access. They are read past L1, since other blocks
// have written them in this launch.
template <class S, int V>
inline constexpr int kAccess = V < kWide<S> ? V : kWide<S>;
template <int V, class S>
__device__ __forceinline__ Vals<S, V> load_partial(const S* p) {
  constexpr int kPart = kAccess<S, V>;
  Vals<S, V> out;
#pragma unroll
  for (int i = 0; i < V; i += kPart) {
    Pack<S, kPart> pack;
    pack.raw = __ldcg(reinterpret_cast<const decltype(pack.raw)*>(p + i));
    const auto part = values<S, kPart>(pack);
#pragma unroll
    for (int k = 0; k < kPart; ++k) out.v[i + k] = part.v[k];
  }
  return out;
}
template <int V, class S>
__device__ __forceinline__ void store_partial(S* p, const Vals<S, V>& x) {
  constexpr int kPart = kAccess<S, V>;
#pragma unroll
  for (int i = 0; i < V; i += kPart) {
    Vals<S, kPart> part;
#pragma unroll
    for (int k = 0; k < kPart; ++k) part.v[k] = x.v[i + k];
    store<kPart>(p + i, part);
  }
}
template <int V, class S>
__device__ __forceinline__ void add(Vals<S, V>& sum, const Vals<S, V>& x) {
#pragma unroll
  for (int k = 0; k < V; ++k) sum.v[k] += x.v[k];
}

__device__ __forceinline__ uint32_t partial_at(uint32_t place, bool begins) {
  return place / kSegment * 2 + (begins ? 1 : 0);
}

// What happens to the running sum after a token.
enum class Then : uint32_t { GoesOn, ToTable, ToPartials };
struct Term {
  uint32_t token_then;  // token in the low 30 bits, Then above
  uint32_t target;      // row of the table or of the partial sums
  __device__ uint32_t token() const { return token_then & 0x3fffffffu; }
  __device__ Then then() const { return static_cast<Then>(token_then >> 30); }
};
__device__ __forceinline__ Term term_of(const RowToken& t, uint32_t place) {
  const uint32_t in_row = place - t.begin, in_segment = in_row % kSegment;
  const bool is_long = t.end - t.begin > kSegment, ends = place + 1 == t.end || in_segment == kSegment - 1;
  const Then then = !ends ? Then::GoesOn : is_long ? Then::ToPartials : Then::ToTable;
  return {t.token | static_cast<uint32_t>(then) << 30,
          is_long ? partial_at(place - in_segment, in_row < kSegment) : t.row};
}

// The terms of the segments that begin in a tile are [from, to), counted from the tile's first place.
struct Tile {
  unsigned from, to;
  bool any_long;  // some of the terms may belong to long rows
};
inline constexpr unsigned kMaxTerms = kTile + kSegment - 1;

// Called by all threads.
__device__ __forceinline__ Tile load_terms(const RowGroups& groups, uint32_t tokens, uint32_t begin,
                                           Term* terms) {
  __shared__ unsigned from, to;
  const uint32_t used = *groups.used;
  const unsigned readable = min(kMaxTerms, tokens - begin);
  bool any_long = false;
  for (unsigned j = threadIdx.x; j < readable; j += blockDim.x) {
    const uint32_t place = begin + j;
    const RowToken t = groups.by_row[place];  // undefined past the used ones
    if (place >= used) break;
    terms[j] = term_of(t, place);
    any_long |= terms[j].then() == Then::ToPartials;
    const uint32_t in_segment = (place - t.begin) % kSegment,
                   segment_end = min(place - in_segment + kSegment, t.end);
    if (j == 0) from = in_segment == 0 ? 0 : segment_end - begin;
    if (j == min(kTile, used - begin) - 1) to = segment_end - begin;
  }
  any_long = __syncthreads_or(any_long);
  return begin < used ? Tile{from, to, any_long} : Tile{};
}

// Tokens in flight: fewer where registers hold 32 bytes for each.
template <class T, class D, bool kAdd>
inline constexpr unsigned kBatch = kAdd && sizeof(T) == sizeof(D) ? 6 : 8;

// Sums V columns starting at `column`.
template <int V, bool kAdd, class T, class D>
__device__ __forceinline__ void sum_terms(const Sums<T, D>& a, const Tile& tile, const Term* terms,
                                          int64_t column) {
  const T* const dy = a.dy + column;
  D* const table = a.dtable + column;
  constexpr unsigned kAtOnce = kBatch<T, D, kAdd>;
  Vals<Stat<T>, V> sum{};
#pragma unroll 1
  for (unsigned first = tile.from; first < tile.to; first += kAtOnce) {
    Pack<T, V> in[kAtOnce];
    Pack<D, V> old[kAtOnce];
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; ++u) {
      if (first + u >= tile.to) continue;
      const Term t = terms[first + u];
      in[u] = fetch<V>(dy + t.token() * a.n);
      if (kAdd && t.then() == Then::ToTable) old[u] = fetch<V>(table + t.target * a.n);
    }
#pragma unroll
    for (unsigned u = 0; u < kAtOnce; ++u) {
      if (first + u >= tile.to) continue;
      const Term t = terms[first + u];
      add(sum, values<T, V>(in[u]));
      if (t.then() == Then::GoesOn) continue;
      if (t.then() == Then::ToTable) {
        if constexpr (kAdd) add(sum, values<D, V>(old[u]));
        store<V>(table + t.target * a.n, sum);
      } else {
        store_partial(a.partials + t.target * a.n + column, sum);
      }
      sum = {};
    }
  }
}

// Completes the long rows for which this block's partial sums arrive last: writes them to the table. Called
// by all threads; the active ones have columns.
template <int V, bool kAdd, class T, class D>
__device__ __forceinline__ void finish_long_rows(const Sums<T, D>& a, uint32_t begin, const Tile& tile,
                                                 const Term* terms, unsigned slab, int64_t column,
                                                 bool active) {
  __shared__ uint32_t complete[2], complete_count;  // a tile may continue one long row and begin another
  if (threadIdx.x == 0) complete_count = 0;
  __threadfence();  // partial sums become visible before the block's arrival
  __syncthreads();
  for (unsigned j = tile.from + threadIdx.x; j < tile.to; j += blockDim.x) {
    if (terms[j].then() != Then::ToPartials) continue;
    const RowToken t = a.groups.by_row[begin + j];
    const uint32_t segments = (t.end - t.begin + kSegment - 1) / kSegment;
    uint32_t* const arrived = a.arrived + int64_t{t.begin / kSegment} * a.slabs + slab;
    if (atomicAdd(arrived, 1u) == segments - 1) complete[atomicAdd(&complete_count, 1u)] = begin + j;
  }
  __syncthreads();
  if (!active || complete_count == 0) return;
  __threadfence();
  for (unsigned i = 0; i < complete_count; ++i) {
    const RowToken t = a.groups.by_row[complete[i]];
    const auto partial = [&](uint32_t place) {
      return load_partial<V>(a.partials + partial_at(place, place == t.begin) * a.n + column);
    };
    auto sum = partial(t.begin);
#pragma unroll 8
    for (uint32_t place = t.begin + kSegment; place < t.end; place += kSegment) add(sum, partial(place));
    D* const entry = a.dtable + t.row * a.n + column;
    if constexpr (kAdd) add(sum, load<V>(entry));
    store<V>(entry, sum);
  }
}

template <int V, class T, class D>
__device__ __forceinline__ void zero_unused(const Sums<T, D>& a, unsigned block) {
  const int64_t first = int64_t{block} * kZeroRows;
  bool skip[kZeroRows];
#pragma unroll
  for (unsigned u = 0; u < kZeroRows; ++u)
    skip[u] = first + u >= a.vocab_local || a.groups.has_tokens(static_cast<uint32_t>(first + u));
#pragma unroll
  for (unsigned u = 0; u < kZeroRows; ++u) {
    if (skip[u]) continue;
    D* const row = a.dtable + (first + u) * a.n;
    for (int64_t i = int64_t{threadIdx.x} * V; i < a.n; i += int64_t{blockDim.x} * V)
      store<V>(row + i, Vals<Stat<D>, V>{});
  }
}

// With kAdd adds to the table; otherwise every row is written and old values are not read.
template <class T, class D, int V, bool kAdd>
__global__ void __launch_bounds__(kThreads, kBlocks) sum_kernel(Sums<T, D> a) {
  await_previous();
  if constexpr (!kAdd)
    if (blockIdx.x >= a.sum_blocks) return zero_unused<V>(a, blockIdx.x - a.sum_blocks);
  __shared__ Term terms[kMaxTerms];
  const unsigned index = blockIdx.x / a.slabs, slab = blockIdx.x - index * a.slabs;
  const uint32_t begin = index * kTile;
  const Tile tile = load_terms(a.groups, a.tokens, begin, terms);
  if (tile.from == tile.to) return;
  const int64_t column = static_cast<int64_t>(slab * blockDim.x + threadIdx.x) * V;
  const bool active = column < a.n;
  if (active) sum_terms<V, kAdd>(a, tile, terms, column);
  if (tile.any_long) finish_long_rows<V, kAdd>(a, begin, tile, terms, slab, column, active);
}

template <int V, bool kAdd, class T, class D>
void launch_sums(Sums<T, D> a, Stream stream) {
  const int64_t packs = a.n / V, slabs = divide_up(packs, kThreads),
                sum_blocks = divide_up(a.tokens, kTile) * slabs,
                zero_blocks = kAdd ? 0 : divide_up(a.vocab_local, kZeroRows);
  a.slabs = static_cast<unsigned>(slabs);
  a.sum_blocks = static_cast<unsigned>(sum_blocks);
  const auto threads = static_cast<unsigned>(divide_up(divide_up(packs, slabs), 32) * 32);
  sum_kernel<T, D, V, kAdd><<<static_cast<unsigned>(sum_blocks + zero_blocks), threads, 0, stream>>>(a);
  check_launch("embedding_dw");
}

}  // namespace

template <class T>
void embedding(const T* table, const int32_t* ids, int64_t vocab_begin, int64_t vocab_local, T* y,
               int64_t tokens, int64_t n, Stream stream) {
  each_row<kWide<T>, 4>(Gather<T>{table, ids, vocab_begin, vocab_local, y, n}, tokens, n,
                        n % kWide<T> == 0 && all_aligned16(table, y), stream, "embedding");
}

template <class T, class D>
void embedding_dw(const T* dy, const int32_t* ids, int64_t vocab_begin, int64_t vocab_local, D* dtable,
                  bool accumulate, int64_t tokens, int64_t n, void* workspace, Stream stream) {
  if (vocab_local <= 0 || n <= 0) return;
  if (tokens <= 0) {
    if (!accumulate) zero(dtable, vocab_local * n * static_cast<int64_t>(sizeof(D)), stream);
    return;
  }
  if (tokens > int64_t{1} << 30)
    fail("embedding_dw: " + std::to_string(tokens) + " tokens, at most 2^30 are supported");
  const EmbeddingScratch sizes = embedding_scratch(tokens, vocab_local, n);
  auto* at = static_cast<unsigned char*>(workspace);
  const auto take = [&](int64_t bytes) {
    void* const here = at;
    at += aligned(bytes);
    return here;
  };
  const RowGroups groups{.bits = embedding_bucket_bits(vocab_local),
                         .by_row = static_cast<RowToken*>(take(sizes.by_row_bytes)),
                         .used = static_cast<uint32_t*>(take(sizes.used_bytes)),
                         .present = static_cast<uint32_t*>(take(sizes.present_bytes))};
  auto* const arrived = static_cast<uint32_t*>(take(sizes.arrived_bytes));
  group_by_row({ids, static_cast<uint32_t>(tokens), static_cast<uint32_t>(vocab_begin),
                static_cast<uint32_t>(vocab_local)},
               groups, arrived, sizes.arrived_bytes / static_cast<int64_t>(sizeof(uint32_t)), stream);
  const Sums<T, D> a{.dy = dy,
                     .groups = groups,
                     .tokens = static_cast<uint32_t>(tokens),
                     .n = n,
                     .vocab_local = vocab_local,
                     .dtable = dtable,
                     .partials = reinterpret_cast<Stat<T>*>(at),
                     .arrived = arrived};
  const bool wide = n % kWide<D> == 0 && all_aligned16(dy, dtable);
  if (wide)
    accumulate ? launch_sums<kWide<D>, true>(a, stream) : launch_sums<kWide<D>, false>(a, stream);
  else
    accumulate ? launch_sums<1, true>(a, stream) : launch_sums<1, false>(a, stream);
}

#define INSTANTIATE(T) template decltype(embedding<T>) embedding<T>;
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE
template decltype(embedding_dw<double, double>) embedding_dw<double, double>;
template decltype(embedding_dw<float, float>) embedding_dw<float, float>;
template decltype(embedding_dw<Bf16, float>) embedding_dw<Bf16, float>;
template decltype(embedding_dw<F16, float>) embedding_dw<F16, float>;
template decltype(embedding_dw<Bf16, Bf16>) embedding_dw<Bf16, Bf16>;

}  // namespace quintet::kernels::cuda
