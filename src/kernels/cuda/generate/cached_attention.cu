// Attention of single rows to a cache of keys and values.
#include "kernels/cuda/generate/generate.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

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

__device__ __forceinline__ void widen8(const uint4& v, float (&out)[8]) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 f = pair_of<Bf16>(words[i]);
    out[2 * i] = f.x, out[2 * i + 1] = f.y;
  }
}

// A block: one row, G queries of one KV head, the keys of one split. D / 8 lanes share a key, each with 8
// elements of it.
template <int D, int G>
__global__ void __launch_bounds__(kThreads)
    attend_split(CachedAttention a, const __nv_bfloat16* q, const __nv_bfloat16* k_new,
                 const __nv_bfloat16* v_new, __nv_bfloat16* k_cache, __nv_bfloat16* v_cache, __nv_bfloat16* o,
                 Partials partials) {
  await_previous();
  constexpr int kLanes = D / 8, kKeys = 32 / kLanes, kParts = kWarps * kKeys;
  // Keys of a lane group whose loads are in flight together: all of a split, or half where registers are few.
  constexpr int kUnroll = static_cast<int>(kDecodeSplit) / kParts / (G > 4 ? 2 : 1);
  __shared__ float part_sum[kParts][G][D];
  __shared__ float part_max[kParts][G], part_weight[kParts][G];
  __shared__ bool is_last;
  const int split = blockIdx.x, t = blockIdx.z, thread = threadIdx.x;
  const int group = static_cast<int>(a.heads / a.kv_heads), blocks_per_head = group / G;
  const int kv = blockIdx.y / blocks_per_head;
  const int head = kv * group + (blockIdx.y % blocks_per_head) * G;
  const int64_t result = t * a.heads + head;
  const int sequence = a.sequences[t];
  if (sequence < 0) {
    if (split == 0)
      for (int i = thread; i < G * D; i += kThreads) o[result * D + i] = __float2bfloat16(0.f);
    return;
  }
  const int last = a.positions[t], first = static_cast<int>(a.scores.first_key(last));
  const int used = (last + 1 - first + static_cast<int>(kDecodeSplit) - 1) / static_cast<int>(kDecodeSplit);
  if (split >= used) return;
  const int begin = first + split * static_cast<int>(kDecodeSplit);
  const int end = min(begin + static_cast<int>(kDecodeSplit), last + 1);

  const int warp = thread / 32, lane = thread % 32, sub = lane / kLanes, piece = lane % kLanes;
  const bool capped = a.scores.soft_cap > 0;
  const float cap = static_cast<float>(a.scores.soft_cap);
  const float scale = static_cast<float>(a.scores.scale) * (capped ? 1.f / cap : kLog2e);
  float query[G][8], sum[G][8], max[G], weight[G];
#pragma unroll
  for (int g = 0; g < G; ++g) {
    widen8(*reinterpret_cast<const uint4*>(q + t * a.q_row + (head + g) * D + piece * 8), query[g]);
    max[g] = -INFINITY;
    weight[g] = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) query[g][i] *= scale, sum[g][i] = 0;
  }
  for (int base = begin + warp * kKeys * kUnroll; base < end; base += kWarps * kKeys * kUnroll) {
    uint4 key[kUnroll], value[kUnroll];
    bool real[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int p = base + u * kKeys + sub;
      const int64_t row = p < end ? a.pages.row(sequence, p) : -1;
      real[u] = row >= 0;
      const int64_t at = ((real[u] ? row : 0) * a.kv_heads + kv) * D + piece * 8;
      // The new row is stored by this launch: it is read where it comes from.
      const bool fresh = p == last;
      const __nv_bfloat16* const k_at = fresh ? k_new + t * a.k_row + kv * D + piece * 8 : k_cache + at;
      const __nv_bfloat16* const v_at = fresh ? v_new + t * a.v_row + kv * D + piece * 8 : v_cache + at;
      key[u] = real[u] ? *reinterpret_cast<const uint4*>(k_at) : uint4{};
      value[u] = real[u] ? *reinterpret_cast<const uint4*>(v_at) : uint4{};
      if (fresh && real[u] && head == kv * group) {
        *reinterpret_cast<uint4*>(k_cache + at) = key[u];
        *reinterpret_cast<uint4*>(v_cache + at) = value[u];
      }
    }
    float score[kUnroll][G];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      float k[8];
      widen8(key[u], k);
#pragma unroll
      for (int g = 0; g < G; ++g) {
        float s = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) s = fmaf(query[g][i], k[i], s);
#pragma unroll
        for (int step = kLanes / 2; step > 0; step /= 2) s += __shfl_xor_sync(0xFFFFFFFFu, s, step);
        if (capped) s = cap * tanhf(s) * kLog2e;
        score[u][g] = real[u] ? s : -INFINITY;
      }
    }
#pragma unroll
    for (int g = 0; g < G; ++g) {
      float most = max[g];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) most = fmaxf(most, score[u][g]);
      if (most == -INFINITY) continue;
      const float factor = exp2f(max[g] - most);
      max[g] = most;
      weight[g] *= factor;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum[g][i] *= factor;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        score[u][g] = exp2f(score[u][g] - most);
        weight[g] += score[u][g];
      }
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (!real[u]) continue;
      float v[8];
      widen8(value[u], v);
#pragma unroll
      for (int g = 0; g < G; ++g)
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[g][i] = fmaf(score[u][g], v[i], sum[g][i]);
    }
  }
  const int part = warp * kKeys + sub;
#pragma unroll
  for (int g = 0; g < G; ++g) {
#pragma unroll
    for (int i = 0; i < 8; ++i) part_sum[part][g][piece * 8 + i] = sum[g][i];
    if (piece == 0) part_max[part][g] = max[g], part_weight[part][g] = weight[g];
  }
  __syncthreads();
  for (int i = thread; i < G * D; i += kThreads) {
    const int g = i / D, j = i % D;
    float most = -INFINITY, all = 0, total = 0;
    for (int p = 0; p < kParts; ++p) most = fmaxf(most, part_max[p][g]);
    for (int p = 0; p < kParts; ++p) {
      const float factor = exp2f(part_max[p][g] - most);
      all = fmaf(factor, part_sum[p][g][j], all);
      total = fmaf(factor, part_weight[p][g], total);
    }
    if (used == 1) {
      o[(result + g) * D + j] = __float2bfloat16(all / total);
    } else {
      const int64_t place = (result + g) * partials.splits + split;
      partials.sums[place * D + j] = all;
      if (j == 0) partials.stats[place * 2] = most, partials.stats[place * 2 + 1] = total;
    }
  }
  if (used == 1) return;
  __threadfence();
  __syncthreads();
  uint32_t* const counter = partials.counters + t * gridDim.y + blockIdx.y;
  if (thread == 0) is_last = atomicAdd(counter, 1u) == static_cast<uint32_t>(used - 1);
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int i = thread; i < G * D; i += kThreads) {
    const int g = i / D, j = i % D;
    const int64_t place = (result + g) * partials.splits;
    float most = -INFINITY, all = 0, total = 0;
#pragma unroll 8
    for (int s = 0; s < used; ++s) most = fmaxf(most, __ldcg(partials.stats + (place + s) * 2));
#pragma unroll 8
    for (int s = 0; s < used; ++s) {
      const float factor = exp2f(__ldcg(partials.stats + (place + s) * 2) - most);
      all = fmaf(factor, __ldcg(partials.sums + (place + s) * D + j), all);
      total = fmaf(factor, __ldcg(partials.stats + (place + s) * 2 + 1), total);
    }
    o[(result + g) * D + j] = __float2bfloat16(all / total);
  }
  if (thread == 0) *counter = 0;
}

struct Tensors {
  const __nv_bfloat16 *q, *k, *v;
  __nv_bfloat16 *k_cache, *v_cache, *o;
};

template <int D, int G>
void launch_split(const CachedAttention& a, const Tensors& x, const Partials& partials, Stream stream) {
  const dim3 grid(static_cast<unsigned>(partials.splits), static_cast<unsigned>(a.heads / G),
                  static_cast<unsigned>(a.tokens));
  attend_split<D, G><<<grid, kThreads, 0, stream>>>(a, x.q, x.k, x.v, x.k_cache, x.v_cache, x.o, partials);
  check_launch("cached_attention");
}

template <int D>
void launch_group(const CachedAttention& a, const Tensors& x, const Partials& partials, Stream stream) {
  switch (a.heads / a.kv_heads) {
    case 1:
      return launch_split<D, 1>(a, x, partials, stream);
    case 2:
      return launch_split<D, 2>(a, x, partials, stream);
    case 4:
      return launch_split<D, 4>(a, x, partials, stream);
    default:
      return launch_split<D, 8>(a, x, partials, stream);
  }
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
    const int64_t keys = a.pages.page_rows * a.pages.pages_per_sequence;
    Partials partials{.sums = static_cast<float*>(workspace),
                      .splits = static_cast<int>((keys + kDecodeSplit - 1) / kDecodeSplit),
                      .counters = counters};
    partials.stats = partials.sums + a.tokens * a.heads * partials.splits * a.dv;
    const auto in = [](const Bf16* p) { return reinterpret_cast<const __nv_bfloat16*>(p); };
    const auto out = [](Bf16* p) { return reinterpret_cast<__nv_bfloat16*>(p); };
    const Tensors x{in(q), in(k), in(v), out(k_cache), out(v_cache), out(o)};
    if (a.d == 128)
      launch_group<128>(a, x, partials, stream);
    else
      launch_group<64>(a, x, partials, stream);
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
