#include <bit>

#include "kernels/cuda/each.cuh"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/pointwise.h"
#include "kernels/cuda/sort.cuh"

namespace quintet::kernels::cuda {
namespace {

// The row of the shard, or -1.
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

// Tokens outside the shard get the key vocab_local and sort to the end.
__global__ void keys_kernel(const int32_t* ids, int64_t tokens, int64_t vocab_begin, int64_t vocab_local,
                            SortPair* pairs) {
  await_previous();
  const int64_t t = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (t >= tokens) return;
  const int64_t row = local_row(ids[t], vocab_begin, vocab_local);
  pairs[t] = {static_cast<uint32_t>(row >= 0 ? row : vocab_local), static_cast<uint32_t>(t)};
}

// Sorted tokens are summed in tiles. The sum of an id that lies in one tile goes to the table at once; the
// first and the last id of a tile may have more tokens in its neighbours, and such sums wait in `edges`
// [tile, first or last, n]. A tile that is all one id counts as first.
inline constexpr int kTile = kEmbeddingTile;
inline constexpr int kThreads = 128;

template <class T, class D>
struct Segments {
  const T* dy;
  const SortPair* pairs;
  int64_t tokens, vocab_local, n;
  D* dtable;
  Stat<T>* edges;
};

template <int V, class D, class S>
__device__ __forceinline__ void add_to(D* p, Vals<S, V> sum) {
  const auto old = load<V>(p);
#pragma unroll
  for (int k = 0; k < V; ++k) sum.v[k] += old.v[k];
  store<V>(p, sum);
}

template <int V, class S>
__device__ __forceinline__ void keep(S* p, const Vals<S, V>& sum) {
#pragma unroll
  for (int k = 0; k < V; ++k) p[k] = sum.v[k];
}

template <class T, class D, int V>
__global__ void __launch_bounds__(kThreads) tile_kernel(Segments<T, D> a) {
  await_previous();
  using S = Stat<T>;
  __shared__ SortPair pairs[kTile + 2];  // with a neighbour on each side
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTile;
  const int count = static_cast<int>(a.tokens - begin < kTile ? a.tokens - begin : kTile);
  if (threadIdx.x < kTile + 2) {
    const int64_t at = begin + threadIdx.x - 1;
    pairs[threadIdx.x] = at >= 0 && at < a.tokens ? a.pairs[at] : SortPair{0xffffffffu, 0};
  }
  __syncthreads();
  const int64_t i = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (i >= a.n) return;
  const auto pair = [&](int j) -> const SortPair& { return pairs[j + 1]; };
  for (int j = 0; j < count;) {
    const uint32_t key = pair(j).key;
    if (key >= a.vocab_local) return;  // from here on no token counts
    int end = j + 1;
    while (end < count && pair(end).key == key) ++end;
    Vals<S, V> sum{};
    for (int first = j; first < end; first += 4) {
      Pack<T, V> in[4];
#pragma unroll
      for (int u = 0; u < 4; ++u)
        if (first + u < end) in[u] = fetch<V>(a.dy + int64_t{pair(first + u).value} * a.n + i);
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        if (first + u >= end) continue;
        const auto v = values<T, V>(in[u]);
#pragma unroll
        for (int k = 0; k < V; ++k) sum.v[k] += v.v[k];
      }
    }
    const bool opens = j == 0 && pair(-1).key == key, goes_on = end == count && pair(count).key == key;
    if (opens || goes_on)
      keep<V>(a.edges + (int64_t{blockIdx.x} * 2 + (j == 0 ? 0 : 1)) * a.n + i, sum);
    else
      add_to<V>(a.dtable + key * a.n + i, sum);
    j = end;
  }
}

// The tile in which an id that runs over tiles begins adds up its sums from all of them.
template <class T, class D, int V>
__global__ void __launch_bounds__(kThreads) edge_kernel(Segments<T, D> a) {
  await_previous();
  using S = Stat<T>;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * kTile, end = begin + kTile;
  if (end >= a.tokens) return;  // nothing goes on behind the last tile
  const uint32_t key = a.pairs[end - 1].key;
  if (key >= a.vocab_local || a.pairs[end].key != key) return;
  const bool whole = a.pairs[begin].key == key;
  if (whole && begin > 0 && a.pairs[begin - 1].key == key) return;  // began in an earlier tile
  const int64_t i = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (i >= a.n) return;
  Vals<S, V> sum{};
  const auto add = [&](int64_t place) {
#pragma unroll
    for (int k = 0; k < V; ++k) sum.v[k] += a.edges[place * a.n + i + k];
  };
  add(int64_t{blockIdx.x} * 2 + (whole ? 0 : 1));
#pragma unroll 4
  for (int64_t tile = int64_t{blockIdx.x} + 1; tile * kTile < a.tokens && a.pairs[tile * kTile].key == key;
       ++tile)
    add(tile * 2);
  add_to<V>(a.dtable + key * a.n + i, sum);
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
  if (!accumulate) zero(dtable, vocab_local * n * static_cast<int64_t>(sizeof(D)), stream);
  if (tokens <= 0 || n <= 0 || vocab_local <= 0) return;
  auto* at = static_cast<unsigned char*>(workspace);
  const auto take = [&](int64_t bytes) {
    void* const here = at;
    at += aligned(bytes);
    return here;
  };
  const int64_t pair_bytes = tokens * static_cast<int64_t>(sizeof(SortPair));
  auto* pairs = static_cast<SortPair*>(take(pair_bytes));
  auto* other = static_cast<SortPair*>(take(pair_bytes));
  void* const counts = take(sort_workspace_bytes(tokens));
  keys_kernel<<<static_cast<unsigned>(divide_up(tokens, 256)), 256, 0, stream>>>(ids, tokens, vocab_begin,
                                                                                 vocab_local, pairs);
  check_launch("embedding_dw");
  const int bits = std::bit_width(static_cast<uint64_t>(vocab_local));  // the key vocab_local occurs too
  const Segments<T, D> a{dy,
                         sort_pairs(pairs, other, tokens, bits, counts, stream),
                         tokens,
                         vocab_local,
                         n,
                         dtable,
                         reinterpret_cast<Stat<T>*>(at)};
  constexpr int kVector = sizeof(T) == 8 ? 2 : 4;  // 16 bytes of f32 and f64, 8 of bf16
  const bool wide = n % kVector == 0 && all_aligned16(dy, dtable);
  const dim3 grid(static_cast<unsigned>(divide_up(tokens, kTile)),
                  static_cast<unsigned>(divide_up(n, int64_t{kThreads} * (wide ? kVector : 1))));
  if (wide) {
    tile_kernel<T, D, kVector><<<grid, kThreads, 0, stream>>>(a);
    edge_kernel<T, D, kVector><<<grid, kThreads, 0, stream>>>(a);
  } else {
    tile_kernel<T, D, 1><<<grid, kThreads, 0, stream>>>(a);
    edge_kernel<T, D, 1><<<grid, kThreads, 0, stream>>>(a);
  }
  check_launch("embedding_dw");
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
