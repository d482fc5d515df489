#include <bit>

#include "kernels/cuda/each.cuh"
#include "kernels/cuda/embedding.h"
#include "kernels/cuda/group.cuh"
#include "kernels/cuda/pointwise.h"

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

// Tokens by row, in one launch without a word between blocks: every block reads all ids and places those of
// its bucket, the rows with the same low bits. The tokens of lower buckets come before, and their number is
// found on the way. Warps have runs of tokens, and count the tokens of each row: a token's place is behind
// those of its row in earlier warps and earlier in its own.
inline constexpr int kGroupThreads = 512, kGroupWarps = kGroupThreads / 32, kGroupUnroll = 16;
inline constexpr int64_t kBuckets = 128, kBucketRows = 2 * kGroupThreads;  // at least, at most

struct Grouping {
  const int32_t* ids;
  uint32_t tokens, vocab_begin, vocab_local;
  int bits, rows;  // of the bucket in a row, and rows of a bucket
  RowToken* by_row;
  uint32_t* used;     // tokens that lie in the shard
  uint32_t* arrived;  // zeroed for the sums
  int64_t arrived_count;
};

__global__ void __launch_bounds__(kGroupThreads) group_kernel(Grouping a) {
  await_previous();
  extern __shared__ uint32_t counts[];  // [warp, row of the bucket], then where the next token goes
  __shared__ uint32_t begins[kBucketRows], ends[kBucketRows], shared[32];
  const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  for (int64_t i = int64_t{blockIdx.x} * kGroupThreads + thread; i < a.arrived_count;
       i += int64_t{gridDim.x} * kGroupThreads)
    a.arrived[i] = 0;
  const auto rows = static_cast<unsigned>(a.rows);
  for (unsigned i = thread; i < kGroupWarps * rows; i += kGroupThreads) counts[i] = 0;
  __syncthreads();
  uint32_t* const own = counts + warp * rows;
  const uint32_t run = (a.tokens + kGroupThreads - 1) / kGroupThreads * 32, first = warp * run,
                 last = min(first + run, a.tokens);
  // Calls f(token, row or -1) with all lanes, in the order of tokens.
  const auto each_token = [&](auto f) {
    for (uint32_t t = first + lane; t - lane < last; t += 32 * kGroupUnroll) {
      int32_t id[kGroupUnroll];
#pragma unroll
      for (int u = 0; u < kGroupUnroll; ++u) id[u] = t + u * 32 < last ? a.ids[t + u * 32] : -1;
#pragma unroll
      for (int u = 0; u < kGroupUnroll; ++u) {
        const uint32_t row = static_cast<uint32_t>(id[u]) - a.vocab_begin;
        f(t + u * 32, id[u] >= 0 && row < a.vocab_local ? static_cast<int>(row) : -1);
      }
    }
  };
  const auto bucket_of = [&](int row) { return static_cast<unsigned>(row) & ((1u << a.bits) - 1); };
  uint32_t before = 0;
  each_token([&](uint32_t, int row) {
    if (row < 0) return;
    before += bucket_of(row) < blockIdx.x;
    if (bucket_of(row) == blockIdx.x) atomicAdd(own + (row >> a.bits), 1u);
  });
  before = block_fold(before, shared, Plus{});  // and all counts are there
  // The rows of a thread: `thread` and the one half a bucket further. Their order does not matter.
  uint32_t total[2] = {};
#pragma unroll
  for (unsigned h = 0; h < 2; ++h)
    if (thread + h * kGroupThreads < rows)
      for (unsigned w = 0; w < kGroupWarps; ++w) total[h] += counts[w * rows + thread + h * kGroupThreads];
  uint32_t place = total[0] + total[1];
#pragma unroll
  for (unsigned d = 1; d < 32; d *= 2) {
    const uint32_t left = __shfl_up_sync(0xffffffffu, place, d);
    if (lane >= d) place += left;
  }
  if (lane == 31) shared[warp] = place;
  __syncthreads();
  place += before;
  for (unsigned w = 0; w < warp; ++w) place += shared[w];
  if (thread == kGroupThreads - 1 && blockIdx.x == gridDim.x - 1) *a.used = place;
  place -= total[0] + total[1];
#pragma unroll
  for (unsigned h = 0; h < 2; ++h) {
    const unsigned row = thread + h * kGroupThreads;
    if (row >= rows) continue;
    begins[row] = place;
    ends[row] = place + total[h];
    for (unsigned w = 0; w < kGroupWarps; ++w) {
      const uint32_t count = counts[w * rows + row];
      counts[w * rows + row] = place;
      place += count;
    }
  }
  __syncthreads();
  each_token([&](uint32_t token, int row) {
    const bool mine = row >= 0 && bucket_of(row) == blockIdx.x;
    const unsigned found = __ballot_sync(0xffffffffu, mine);
    if (found == 0) return;
    const int at = row >> a.bits;
    unsigned same = 0, lower = 0;
    if (mine) {
      same = __match_any_sync(found, at);
      lower = static_cast<unsigned>(__popc(same & ((1u << lane) - 1)));
      a.by_row[own[at] + lower] = {token, static_cast<uint32_t>(row), begins[at], ends[at]};
    }
    __syncwarp();
    if (mine && lower == 0) own[at] += static_cast<uint32_t>(__popc(same));
    __syncwarp();
  });
}

// Tokens by row are summed in tiles. The sum of a row that lies in one tile goes to the table at once. The
// first and the last row of a tile may have more tokens in its neighbours: such sums wait in `edges` [tile,
// first or last, n], and whoever of the tiles of a row comes last adds them up in order. A tile that is all
// one row counts as first.
inline constexpr unsigned kTile = kEmbeddingTile;
inline constexpr int kThreads = kEmbeddingThreads, kBlocks = 6;  // on a multiprocessor
inline constexpr unsigned kBatch = 8;                            // tokens in flight

template <class T, class D>
struct Segments {
  const T* dy;
  const RowToken* by_row;
  const uint32_t* used;
  uint32_t tokens;
  int64_t n;
  unsigned slabs;  // of columns
  bool accumulate;
  D* dtable;
  Stat<T>* edges;
  uint32_t* arrived;  // [tile in which a row begins, slab]
};

// What other blocks have written in this launch.
template <int V, class S>
__device__ __forceinline__ Vals<S, V> load_fresh(const S* p) {
  Pack<S, V> pack;
  pack.raw = __ldcg(reinterpret_cast<const decltype(pack.raw)*>(p));
  return values<S, V>(pack);
}
template <int V, class S>
__device__ __forceinline__ void add(Vals<S, V>& sum, const Vals<S, V>& x) {
#pragma unroll
  for (int k = 0; k < V; ++k) sum.v[k] += x.v[k];
}

template <class T, class D, int V>
__global__ void __launch_bounds__(kThreads, kBlocks) tile_kernel(Segments<T, D> a) {
  await_previous();
  using S = Stat<T>;
  __shared__ RowToken items[kTile];
  __shared__ bool is_last;
  const unsigned tile = blockIdx.x / a.slabs, slab = blockIdx.x - tile * a.slabs;
  const uint32_t begin = tile * kTile, used = *a.used;
  if (threadIdx.x < min(kTile, a.tokens - begin)) items[threadIdx.x] = a.by_row[begin + threadIdx.x];
  __syncthreads();
  if (begin >= used) return;
  const unsigned count = min(kTile, used - begin);
  const int64_t column = static_cast<int64_t>(slab * blockDim.x + threadIdx.x) * V;
  const bool active = column < a.n;
  const auto entry = [&](uint32_t row) { return a.dtable + row * a.n + column; };
  const auto edge = [&](uint32_t of, int which) {
    return a.edges + (int64_t{of} * 2 + which) * a.n + column;
  };
  if (active) {
    Vals<S, V> sum{};
#pragma unroll 1
    for (unsigned first = 0; first < count; first += kBatch) {
      Pack<T, V> in[kBatch];
      Pack<D, V> old[kBatch];
#pragma unroll
      for (unsigned u = 0; u < kBatch; ++u) {
        const unsigned j = first + u;
        if (j >= count) continue;
        const RowToken t = items[j];
        in[u] = fetch<V>(a.dy + t.token * a.n + column);
        if (a.accumulate && t.end == begin + j + 1 && t.begin >= begin) old[u] = fetch<V>(entry(t.row));
      }
#pragma unroll
      for (unsigned u = 0; u < kBatch; ++u) {
        const unsigned j = first + u;
        if (j >= count) continue;
        const RowToken t = items[j];
        add(sum, values<T, V>(in[u]));
        if (t.end == begin + j + 1) {
          if (t.begin >= begin) {
            if (a.accumulate) add(sum, values<D, V>(old[u]));
            store<V>(entry(t.row), sum);
          } else {
            store<V>(edge(tile, 0), sum);
          }
          sum = {};
        } else if (j == kTile - 1) {
          store<V>(edge(tile, t.begin > begin), sum);
        }
      }
    }
  }
  // Called by all threads; `t` is a token here of a row that runs over tiles.
  const auto finish = [&](const RowToken& t) {
    const uint32_t from = t.begin / kTile, to = (t.end - 1) / kTile;
    __threadfence();  // this thread's sums before the block's arrival
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(a.arrived + int64_t{from} * a.slabs + slab, 1u) == to - from;
    __syncthreads();
    if (!is_last || !active) return;
    __threadfence();
    auto sum = load_fresh<V>(edge(from, t.begin % kTile != 0));
#pragma unroll 8
    for (uint32_t i = from + 1; i <= to; ++i) add(sum, load_fresh<V>(edge(i, 0)));
    if (a.accumulate) add(sum, load<V>(entry(t.row)));
    store<V>(entry(t.row), sum);
  };
  const bool opens = items[0].begin < begin;
  if (opens) finish(items[0]);
  const RowToken& tail = items[count - 1];
  if (tail.end > begin + kTile && !(opens && tail.begin == items[0].begin)) finish(tail);
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
  constexpr int kVector = sizeof(T) == 8 ? 2 : 4;  // 16 bytes of f32 and f64, 8 of bf16
  const bool wide = n % kVector == 0 && all_aligned16(dy, dtable);
  const int64_t packs = wide ? n / kVector : n, slabs = divide_up(packs, kThreads),
                tiles = divide_up(tokens, kTile), word = sizeof(uint32_t);
  auto* const by_row = static_cast<RowToken*>(take(tokens * static_cast<int64_t>(sizeof(RowToken))));
  auto* const used = static_cast<uint32_t*>(take(word));
  auto* const arrived = static_cast<uint32_t*>(take(tiles * divide_up(n, kThreads) * word));
  int bits = std::countr_zero(static_cast<uint64_t>(kBuckets));
  while (vocab_local > kBucketRows << bits) ++bits;
  const auto rows = static_cast<int>(divide_up(vocab_local, int64_t{1} << bits));
  check(cudaFuncSetAttribute(group_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(kGroupWarps * kBucketRows * word)),
        "embedding_dw");
  group_kernel<<<1u << bits, kGroupThreads, static_cast<size_t>(kGroupWarps * rows * word), stream>>>(
      {ids, static_cast<uint32_t>(tokens), static_cast<uint32_t>(vocab_begin),
       static_cast<uint32_t>(vocab_local), bits, rows, by_row, used, arrived, tiles * slabs});
  check_launch("embedding_dw");
  const Segments<T, D> a{.dy = dy,
                         .by_row = by_row,
                         .used = used,
                         .tokens = static_cast<uint32_t>(tokens),
                         .n = n,
                         .slabs = static_cast<unsigned>(slabs),
                         .accumulate = accumulate,
                         .dtable = dtable,
                         .edges = reinterpret_cast<Stat<T>*>(at),
                         .arrived = arrived};
  const auto blocks = static_cast<unsigned>(tiles * slabs);
  const auto threads = static_cast<unsigned>(divide_up(divide_up(packs, slabs), 32) * 32);
  if (wide)
    tile_kernel<T, D, kVector><<<blocks, threads, 0, stream>>>(a);
  else
    tile_kernel<T, D, 1><<<blocks, threads, 0, stream>>>(a);
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
