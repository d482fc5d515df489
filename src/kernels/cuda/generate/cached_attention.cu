// Attention of single rows to a cache of keys and values.
#include <algorithm>

#include "kernels/cuda/attention/mma.cuh"
#include "kernels/cuda/generate/generate.h"
#include "kernels/cuda/support/launch.cuh"

namespace quintet::kernels::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr float kLog2e = 1.4426950408889634f;

// The results of a split: sums of dv elements, their maximum and sum of weights (in powers of two).
struct Partials {
  float* sums = nullptr;   // [tokens, heads, splits, dv]
  float* stats = nullptr;  // [tokens, heads, splits, 2]
  int splits = 1;
  uint32_t* counters = nullptr;  // by (token, block of heads)
};

struct Tensors {
  const Bf16 *q, *k, *v;  // k and v: the new rows
  Bf16 *k_cache, *v_cache, *o;
};

// A row and up to kHeads query heads of one KV head. It sees `keys` cached ones from `first` on, in `splits`
// of `length`, and the new one at position `last`.
struct RowHeads {
  int t, kv, head, heads, sequence, last;
  int first, keys, length, splits;
  __device__ __forceinline__ int begin(int split) const { return first + split * length; }
  __device__ __forceinline__ int end(int split) const { return min(begin(split) + length, first + keys); }
};

// Of rows and blocks of heads, the latter fastest.
__device__ __forceinline__ RowHeads row_heads(const CachedAttention& a, int max_heads, int index) {
  const int group = static_cast<int>(a.heads / a.kv_heads), parts = (group + max_heads - 1) / max_heads;
  const int blocks = static_cast<int>(a.kv_heads) * parts, block = index % blocks;
  RowHeads r{};
  r.t = index / blocks;
  r.kv = block / parts;
  r.head = r.kv * group + block % parts * max_heads;
  r.heads = min(max_heads, group - block % parts * max_heads);
  r.sequence = a.sequences[r.t];
  r.last = a.positions[r.t];
  r.first = static_cast<int>(a.scores.first_key(r.last));
  r.keys = r.sequence < 0 ? 0 : r.last - r.first;
  r.length = static_cast<int>(decode_split_keys(r.keys));
  r.splits = max(1, (r.keys + r.length - 1) / r.length);
  return r;
}

// As PagedRows::row, in 32 bits.
__device__ __forceinline__ int cache_row(const CachedAttention& a, int sequence, int position) {
  const auto rows = static_cast<unsigned>(a.pages.page_rows), p = static_cast<unsigned>(position);
  const int page =
      a.pages.table[sequence * static_cast<int>(a.pages.pages_per_sequence) + static_cast<int>(p / rows)];
  return page < 0 ? -1 : page * static_cast<int>(rows) + static_cast<int>(p % rows);
}

// A warp's chunks of kChunk keys, in flight to its own part of shared memory: of every split each warp has a
// quarter of the chunks. Chunks of the block's next splits and rows follow without a pause.
template <int D>
struct Chunks {
  static constexpr int kChunk = 16, kStages = 3, kTileBytes = kChunk * D * 2, kStageBytes = 2 * kTileBytes;
  static constexpr int kBytes = kWarps * kStages * kStageBytes;
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xFFFFFFFFu, x, 1);
  return x + __shfl_xor_sync(0xFFFFFFFFu, x, 2);
}

// A score in powers of two from a dot product.
struct ScoreScale {
  float inner, outer;  // outer 0: no soft cap
  __device__ explicit ScoreScale(const CachedScores& s)
      : inner(static_cast<float>(s.soft_cap > 0 ? s.scale / s.soft_cap : s.scale * kLog2e)),
        outer(static_cast<float>(s.soft_cap) * kLog2e) {}
  __device__ __forceinline__ float operator()(float dot) const {
    return outer > 0 ? outer * tanh_fast(dot * inner) : dot * inner;
  }
};

// kHeads: 8, or 16 where more query heads share a KV head; tensor cores take 16 queries in either case. An
// item is a split of a row and its heads; a block has a range of items, so that with many rows it has all
// splits of a row, which then need no counter. Keys are read while earlier ones are computed, and the first
// ones before the previous kernel has finished: no kernel of a step but this one writes the cache, and of
// its rows only those of new tokens, which are read from k and v instead.
template <int D, int kHeads>
__global__ void __launch_bounds__(kThreads)
    attend_splits(CachedAttention a, Tensors x, Partials partials, int items, int items_of_block) {
  allow_next();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  using Ring = Chunks<D>;
  constexpr int kStages = Ring::kStages, kChunk = Ring::kChunk;
  constexpr int kVectors = D / 8, kCopies = kChunk * kVectors / 32;
  extern __shared__ __align__(128) unsigned char memory[];
  __shared__ float part_max[kWarps][kHeads], part_weight[kWarps][kHeads], new_score[kHeads];
  __shared__ bool is_last;
  // [kWarps][kHeads][D]; the columns of a head are permuted so that a warp stores without bank conflicts.
  float* const part_sum = reinterpret_cast<float*>(memory + Ring::kBytes);
  const auto place_of = [](int warp, int g, int n) { return (warp * kHeads + g) * D + (n ^ (g & 3) << 3); };
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int splits = partials.splits, first_item = static_cast<int>(blockIdx.x) * items_of_block,
            end_item = min(items, first_item + items_of_block);
  const uint32_t ring = shared_address(memory) + static_cast<uint32_t>(warp * kStages * Ring::kStageBytes);

  // The next chunk to copy; `masks` has 16 bits for every stage in order, set where a key exists.
  int item = first_item, key = 0, end = 0, fill = 0;
  uint64_t masks = 0;
  RowHeads next{};
  const auto enter = [&] {
    if (item >= end_item) return;
    if (item == first_item || item % splits == 0) next = row_heads(a, kHeads, item / splits);
    const int split = item % splits;
    key = next.begin(split) + warp * kChunk;
    end = split < next.splits ? next.end(split) : key;
  };
  const auto copy_next = [&] {
    while (item < end_item && key >= end) ++item, enter();
    uint32_t mask = 0;
    if (item < end_item) {
      const int p = key + lane % kChunk, row = p < end ? cache_row(a, next.sequence, p) : -1;
      mask = __ballot_sync(0xFFFFFFFFu, row >= 0) & 0xFFFFu;
      const uint32_t k_tile = ring + static_cast<uint32_t>(fill * Ring::kStageBytes),
                     v_tile = k_tile + Ring::kTileBytes;
#pragma unroll
      for (int i = 0; i < kCopies; ++i) {
        const int r = (i * 32 + lane) / kVectors, vector = lane % kVectors;
        const int from = __shfl_sync(0xFFFFFFFFu, row, r);
        const int64_t at = (int64_t{max(from, 0)} * static_cast<int>(a.kv_heads) + next.kv) * D + vector * 8;
        const uint32_t to = SharedTile<D>::offset(r, vector);
        copy_or_zero(k_tile + to, x.k_cache + at, from >= 0);
        copy_or_zero(v_tile + to, x.v_cache + at, from >= 0);
      }
      key += kWarps * kChunk;
    }
    end_copies();
    masks = masks >> 16 | static_cast<uint64_t>(mask) << (16 * (kStages - 1));
    fill = fill + 1 == kStages ? 0 : fill + 1;
  };
  enter();
#pragma unroll 1
  for (int i = 0; i < kStages; ++i) copy_next();
  await_writes();

  const ScoreScale score(a.scores);
  const auto add = [](float4& sum, float factor, const float4& v) {
    sum.x = fmaf(factor, v.x, sum.x), sum.y = fmaf(factor, v.y, sum.y);
    sum.z = fmaf(factor, v.z, sum.z), sum.w = fmaf(factor, v.w, sum.w);
  };
  int stage = 0;
#pragma unroll 1
  for (int index = first_item; index < end_item;) {
    const RowHeads row = row_heads(a, kHeads, index / splits);
    const int first_split = index % splits, end_split = min(row.splits, first_split + end_item - index);
    index += min(splits - first_split, end_item - index);
    if (first_split >= end_split) continue;
    const int64_t result = row.t * a.heads + row.head;
    if (row.sequence < 0) {
      for (int i = thread; i < row.heads * D; i += kThreads) put<1>(x.o + result * D + i, Pack<Bf16, 1>{0});
      continue;
    }
    const auto finish = [&](int g, int n, const float4& sum, float total) {
      const float scale = 1.f / total;
      put<4>(x.o + (result + g) * D + n,
             packed<Bf16, 4>({{sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale}}));
    };
    const Bf16* const q = x.q + row.t * a.q_row + row.head * D;
    const Bf16 *const k_new = x.k + row.t * a.k_row + row.kv * D, *const v_new =
                                                                      x.v + row.t * a.v_row + row.kv * D;
    uint32_t query[D / 16][4];
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int g = lane / 4 + i % 2 * 8, column = k * 16 + i / 2 * 8 + lane % 4 * 2;
        query[k][i] = g < kHeads && g < row.heads ? fetch<2>(q + g * D + column).raw : 0u;
      }
    if (first_split == 0) {  // the new key
#pragma unroll 2
      for (int g = warp; g < row.heads; g += kWarps) {
        float dot = 0;
#pragma unroll
        for (int i = 0; i < D / 64; ++i) {
          const float2 u = pair_of<Bf16>(fetch<2>(q + g * D + i * 64 + lane * 2).raw),
                       w = pair_of<Bf16>(fetch<2>(k_new + i * 64 + lane * 2).raw);
          dot = fmaf(u.x, w.x, fmaf(u.y, w.y, dot));
        }
#pragma unroll
        for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(0xFFFFFFFFu, dot, step);
        if (lane == 0) new_score[g] = score(dot);
      }
      if (row.head == row.kv * static_cast<int>(a.heads / a.kv_heads) && thread < 2 * kVectors) {
        const int to = cache_row(a, row.sequence, row.last), vector = thread % kVectors * 8;
        const int64_t at = (int64_t{to} * a.kv_heads + row.kv) * D + vector;
        if (to >= 0 && thread < kVectors) put<8>(x.k_cache + at, fetch<8>(k_new + vector));
        if (to >= 0 && thread >= kVectors) put<8>(x.v_cache + at, fetch<8>(v_new + vector));
      }
    }
#pragma unroll 1
    for (int split = first_split; split < end_split; ++split) {
      float out[D / 8][4], max[2] = {-INFINITY, -INFINITY}, weight[2] = {0, 0};
#pragma unroll
      for (int j = 0; j < D / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[j][i] = 0;
      const int end_key = row.end(split);
#pragma unroll 1
      for (int c = row.begin(split) + warp * kChunk; c < end_key; c += kWarps * kChunk) {
        await_copies<kStages - 1>();
        __syncwarp();
        const uint32_t mask = static_cast<uint32_t>(masks) & 0xFFFFu,
                       k_tile = ring + static_cast<uint32_t>(stage * Ring::kStageBytes),
                       v_tile = k_tile + Ring::kTileBytes;
        float s[2][4] = {};
        const LaneAddress<D> keys = right_operand<D>(k_tile, lane);
#pragma unroll
        for (int k = 0; k < D / 16; ++k) {
          uint32_t b[4];
          load_matrices(b, keys.at(0, k * 16));
          multiply_add<Bf16>(s[0], query[k], b[0], b[1]);
          multiply_add<Bf16>(s[1], query[k], b[2], b[3]);
        }
        float most[2] = {max[0], max[1]};
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            s[j][i] = (mask >> (j * 8 + lane % 4 * 2 + i % 2) & 1) != 0 ? score(s[j][i]) : -INFINITY;
            most[i / 2] = fmaxf(most[i / 2], s[j][i]);
          }
        uint32_t p[4] = {};
#pragma unroll
        for (int h = 0; h < kHeads / 8; ++h) {
          most[h] = quad_max(most[h]);
          const float base = most[h] == -INFINITY ? 0.f : most[h], factor = exp2_fast(max[h] - base);
          const bool moved = most[h] != max[h];
          max[h] = most[h];
          float total = 0;
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float low = exp2_fast(s[j][2 * h] - base), high = exp2_fast(s[j][2 * h + 1] - base);
            total += low + high;
            p[j * 2 + h] = word_of<Bf16>(low, high);
          }
          weight[h] = fmaf(weight[h], factor, total);
          if (__any_sync(0xFFFFFFFFu, moved))
#pragma unroll
            for (int j = 0; j < D / 8; ++j) out[j][2 * h] *= factor, out[j][2 * h + 1] *= factor;
        }
        const LaneAddress<D> values = right_transposed<D>(v_tile, lane);
#pragma unroll
        for (int j = 0; j < D / 16; ++j) {
          uint32_t b[4];
          load_transposed(b, values.at(0, j * 16));
          multiply_add<Bf16>(out[2 * j], p, b[0], b[1]);
          multiply_add<Bf16>(out[2 * j + 1], p, b[2], b[3]);
        }
        __syncwarp();  // all lanes have read the stage
        stage = stage + 1 == kStages ? 0 : stage + 1;
        copy_next();
      }
#pragma unroll
      for (int h = 0; h < kHeads / 8; ++h) {
        const int g = lane / 4 + 8 * h;
        const float total = quad_sum(weight[h]);
        if (lane % 4 == 0) part_max[warp][g] = max[h], part_weight[warp][g] = total;
#pragma unroll
        for (int j = 0; j < D / 8; ++j)
          *reinterpret_cast<float2*>(part_sum + place_of(warp, g, j * 8 + lane % 4 * 2)) =
              make_float2(out[j][2 * h], out[j][2 * h + 1]);
      }
      __syncthreads();
      for (int i = thread; i < row.heads * (D / 4); i += kThreads) {
        const int g = i / (D / 4), n = i % (D / 4) * 4;
        float most = split == 0 ? new_score[g] : -INFINITY, total = 0;
        float4 sum{};
#pragma unroll
        for (int w = 0; w < kWarps; ++w) most = fmaxf(most, part_max[w][g]);
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          const float factor = exp2_fast(part_max[w][g] - most);
          total = fmaf(factor, part_weight[w][g], total);
          add(sum, factor, *reinterpret_cast<const float4*>(part_sum + place_of(w, g, n)));
        }
        if (split == 0) {
          const float factor = exp2_fast(new_score[g] - most);
          const auto v = load<4>(v_new + n);
          total += factor;
          add(sum, factor, make_float4(v.v[0], v.v[1], v.v[2], v.v[3]));
        }
        if (row.splits == 1) {
          finish(g, n, sum, total);
        } else {
          const int64_t place = (result + g) * splits + split;
          *reinterpret_cast<float4*>(partials.sums + place * D + n) = sum;
          if (n == 0) *reinterpret_cast<float2*>(partials.stats + place * 2) = make_float2(most, total);
        }
      }
      __syncthreads();  // the parts may be overwritten; this block's partials are visible to it
    }
    if (row.splits == 1) continue;
    // Whichever block finishes last merges the row's splits, in order.
    bool merges = end_split - first_split == row.splits;
    if (!merges) {
      __threadfence();
      __syncthreads();
      if (thread == 0) {
        uint32_t* const counter = partials.counters + (index - 1) / splits;
        const auto mine = static_cast<uint32_t>(end_split - first_split);
        is_last = atomicAdd(counter, mine) + mine == static_cast<uint32_t>(row.splits);
        if (is_last) *counter = 0;
      }
      __syncthreads();
      merges = is_last;
      if (merges) __threadfence();
    }
    if (!merges) continue;
    for (int i = thread; i < row.heads * (D / 4); i += kThreads) {
      const int g = i / (D / 4), n = i % (D / 4) * 4;
      const int64_t place = (result + g) * splits;
      float most = -INFINITY, total = 0;
      float4 sum{};
#pragma unroll 8
      for (int s = 0; s < row.splits; ++s) most = fmaxf(most, __ldcg(partials.stats + (place + s) * 2));
#pragma unroll 8
      for (int s = 0; s < row.splits; ++s) {
        const float2 stat = __ldcg(reinterpret_cast<const float2*>(partials.stats + (place + s) * 2));
        const float factor = exp2_fast(stat.x - most);
        total = fmaf(factor, stat.y, total);
        add(sum, factor, __ldcg(reinterpret_cast<const float4*>(partials.sums + (place + s) * D + n)));
      }
      finish(g, n, sum, total);
    }
  }
  await_copies<0>();
#endif
}

int processors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "cached_attention");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "cached_attention");
  return count;
}

template <int D, int kHeads>
void launch_splits(const CachedAttention& a, const Tensors& x, const Partials& partials, Stream stream) {
  constexpr int kBytes = Chunks<D>::kBytes + kWarps * kHeads * D * 4;
  const auto kernel = attend_splits<D, kHeads>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
        "cached_attention");
  int each = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, kThreads, kBytes), "cached_attention");
  const int64_t parts = (a.heads / a.kv_heads + kHeads - 1) / kHeads,
                items = a.tokens * a.kv_heads * parts * partials.splits,
                resident = int64_t{processors()} * std::max(each, 1),
                items_of_block = (items + resident - 1) / resident,
                blocks = (items + items_of_block - 1) / items_of_block;
  kernel<<<static_cast<unsigned>(blocks), kThreads, kBytes, stream>>>(a, x, partials, static_cast<int>(items),
                                                                      static_cast<int>(items_of_block));
  check_launch("cached_attention");
}

template <int D>
void launch_heads(const CachedAttention& a, const Tensors& x, const Partials& partials, Stream stream) {
  if (a.heads / a.kv_heads <= 8)
    launch_splits<D, 8>(a, x, partials, stream);
  else
    launch_splits<D, 16>(a, x, partials, stream);
}

template <class T>
__device__ __forceinline__ Stat<T> number(const T* p) {
  return values<T, 1>(fetch<1>(p)).v[0];
}
template <class T>
__device__ __forceinline__ void set(T* p, Stat<T> v) {
  put<1>(p, packed<T, 1>({{v}}));
}

template <class S>
__device__ S block_fold(S v, S* shared, bool largest) {
  for (int step = 16; step > 0; step /= 2) {
    const S other = __shfl_xor_sync(0xFFFFFFFFu, v, step);
    v = largest ? (other > v ? other : v) : v + other;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
  __syncthreads();
  v = shared[0];
  for (int i = 1; i < kWarps; ++i) v = largest ? (shared[i] > v ? shared[i] : v) : v + shared[i];
  return v;
}

// Any type and width: one block per row and head, scores in the workspace.
template <class T>
__global__ void __launch_bounds__(kThreads)
    attend_row(CachedAttention a, const T* q, const T* k_new, const T* v_new, T* k_cache, T* v_cache, T* o,
               Stat<T>* scores) {
  await_previous();
  using S = Stat<T>;
  __shared__ S shared[kWarps];
  const int64_t i = blockIdx.x, t = i / a.heads, h = i % a.heads, group = a.heads / a.kv_heads,
                kv = h / group;
  const int32_t sequence = a.sequences[t];
  if (sequence < 0) {
    for (int64_t j = threadIdx.x; j < a.dv; j += kThreads) set(o + i * a.dv + j, S(0));
    return;
  }
  S* const score = scores + i * a.pages.page_rows * a.pages.pages_per_sequence;
  const int64_t last = a.positions[t], first = a.scores.first_key(last);
  // The new row is stored by this launch: it is read where it comes from.
  const T *const k_last = k_new + t * a.k_row + kv * a.d, *const v_last = v_new + t * a.v_row + kv * a.dv;
  if (h % group == 0) {
    const int64_t at = a.pages.row(sequence, last) * a.kv_heads + kv;
    for (int64_t j = threadIdx.x; j < a.d; j += kThreads) k_cache[at * a.d + j] = k_last[j];
    for (int64_t j = threadIdx.x; j < a.dv; j += kThreads) v_cache[at * a.dv + j] = v_last[j];
  }
  S most = -INFINITY;
  for (int64_t p = first + threadIdx.x; p <= last; p += kThreads) {
    const T* const key = p == last ? k_last : k_cache + (a.pages.row(sequence, p) * a.kv_heads + kv) * a.d;
    S s = 0;
    for (int64_t j = 0; j < a.d; ++j) s += number(q + t * a.q_row + h * a.d + j) * number(key + j);
    s *= static_cast<S>(a.scores.scale);
    if (a.scores.soft_cap > 0)
      s = static_cast<S>(a.scores.soft_cap) * tanh(s / static_cast<S>(a.scores.soft_cap));
    score[p - first] = s;
    most = s > most ? s : most;
  }
  most = block_fold(most, shared, true);
  S total = 0;
  for (int64_t p = first + threadIdx.x; p <= last; p += kThreads) {
    const S w = exp(score[p - first] - most);
    score[p - first] = w;
    total += w;
  }
  total = block_fold(total, shared, false);
  __syncthreads();
  for (int64_t j = threadIdx.x; j < a.dv; j += kThreads) {
    S sum = 0;
    for (int64_t p = first; p <= last; ++p) {
      const T* const value =
          p == last ? v_last : v_cache + (a.pages.row(sequence, p) * a.kv_heads + kv) * a.dv;
      sum += score[p - first] * number(value + j);
    }
    set(o + i * a.dv + j, sum / total);
  }
}

}  // namespace

template <class T>
void cached_attention(const CachedAttention& a, const T* q, const T* k, const T* v, T* k_cache, T* v_cache,
                      T* o, void* workspace, uint32_t* counters, Stream stream) {
  if (a.tokens == 0) return;
  if (!decodes_in_splits(a, std::is_same_v<T, Bf16>)) {
    attend_row<T><<<static_cast<unsigned>(a.tokens * a.heads), kThreads, 0, stream>>>(
        a, q, k, v, k_cache, v_cache, o, static_cast<Stat<T>*>(workspace));
    check_launch("cached_attention");
    return;
  }
  if constexpr (std::is_same_v<T, Bf16>) {
    Partials partials{.sums = static_cast<float*>(workspace),
                      .splits = static_cast<int>(decode_splits(a)),
                      .counters = counters};
    partials.stats = partials.sums + a.tokens * a.heads * partials.splits * a.dv;
    const Tensors x{q, k, v, k_cache, v_cache, o};
    if (a.d == 128)
      launch_heads<128>(a, x, partials, stream);
    else
      launch_heads<64>(a, x, partials, stream);
  }
}

#define INSTANTIATE(T)                                                                                       \
  template void cached_attention<T>(const CachedAttention&, const T*, const T*, const T*, T*, T*, T*, void*, \
                                    uint32_t*, Stream);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
