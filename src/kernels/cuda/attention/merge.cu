#include "kernels/cuda/attention/merge.h"
#include "kernels/cuda/attention/places.cuh"
#include "kernels/cuda/elementwise/each.cuh"

namespace quintet::kernels::cuda {
namespace {

__device__ __forceinline__ float minus_infinity() { return -__int_as_float(0x7f800000); }

struct Share {
  float own, old, lse;
};
// The shares of one hop's result (when it has seen a key) and of the earlier result in the result over all of
// their keys. Where one of them has seen nothing the other is taken unchanged.
__device__ __forceinline__ Share share_of(bool seen, float own_lse, float earlier) {
  const float nothing = minus_infinity();
  if (!seen || (own_lse == nothing && earlier != nothing))
    return {0, earlier == nothing ? 0.f : 1.f, earlier};
  if (earlier == nothing) return {1, 0, own_lse};
  const float top = own_lse > earlier ? own_lse : earlier;
  const float all = top + logf(expf(earlier - top) + expf(own_lse - top));
  return {expf(own_lse - all), expf(earlier - all), all};
}

struct MergeShape {
  Places places;
  int64_t rows;
  int width;                 // per head
  int64_t stride, o_stride;  // of the hop's o, and of the merged one
};

// One head of kMergeRows rows. The statistics of a row are read and written by one thread, every element of o
// by one: both may be in place. A block has as many whole rows of threads as fit kMergeThreads, so that each
// thread stays in its columns.
inline constexpr int kMergeThreads = 256, kMergeRows = 32, kMergeUnroll = 4;
template <int V, class T, class O>
__global__ void __launch_bounds__(kMergeThreads)
    merge_kernel(const __grid_constant__ MergeShape s, const T* hop_o, const float* hop_lse,
                 const float* o_before, const float* lse_before, O* o, float* lse) {
  await_previous();
  __shared__ float own_share[kMergeRows], old_share[kMergeRows];
  __shared__ uint32_t place[kMergeRows];
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kMergeRows, head = blockIdx.y;
  const int rows = static_cast<int>(s.rows - row0 < kMergeRows ? s.rows - row0 : kMergeRows);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < rows) {
    const int64_t at = head * s.rows + row0 + thread;
    const uint32_t from = s.places.of(static_cast<uint32_t>(row0 + thread));
    const bool seen = s.places.has(from);
    const Share share = share_of(seen, seen ? hop_lse[head * s.rows + from] : 0.f,
                                 lse_before != nullptr ? lse_before[at] : minus_infinity());
    place[thread] = from;
    own_share[thread] = share.own;
    old_share[thread] = share.old;
    lse[at] = share.lse;
  }
  __syncthreads();
  const int64_t corner = row0 * s.o_stride + head * s.width;
  const bool in_place = static_cast<const void*>(o) == static_cast<const void*>(o_before);
  const int across = s.width / V, step = static_cast<int>(blockDim.x) / across, d = thread % across * V;
  for (int first = thread / across; first < rows; first += step * kMergeUnroll) {
    Pack<T, V> mine[kMergeUnroll];
    Pack<float, V> before[kMergeUnroll];
#pragma unroll
    for (int u = 0; u < kMergeUnroll; ++u) {
      const int i = first + u * step;
      if (i >= rows) break;
      if (own_share[i] != 0.f) mine[u] = fetch<V>(hop_o + place[i] * s.stride + head * s.width + d);
      if (old_share[i] != 0.f) before[u] = fetch<V>(o_before + corner + i * s.o_stride + d);
    }
#pragma unroll
    for (int u = 0; u < kMergeUnroll; ++u) {
      const int i = first + u * step;
      if (i >= rows) break;
      const float own = own_share[i], old = old_share[i];
      if (own == 0.f && old == 1.f && in_place) continue;
      // Selected, not multiplied: a value with weight 0 may be anything.
      const auto new_values = values<T, V>(mine[u]);
      const auto old_values = values<float, V>(before[u]);
      Vals<float, V> sum;
#pragma unroll
      for (int k = 0; k < V; ++k)
        sum.v[k] = (own == 0.f ? 0.f : own * new_values.v[k]) + (old == 0.f ? 0.f : old * old_values.v[k]);
      store<V>(o + corner + i * s.o_stride + d, sum);
    }
  }
}

// dq = dq_before + this hop's contribution.
template <class T, class O>
struct AddShare {
  Places places;
  int64_t share_stride, stride;
  const T* share;
  const float* before;  // null: zero
  O* dq;

  template <int V>
  struct Loaded {
    bool seen;
    Pack<T, V> share;
    Pack<float, V> before;
  };
  template <int V>
  __device__ __forceinline__ Loaded<V> load(int64_t row, int64_t i) const {
    Loaded<V> x;
    const uint32_t from = places.of(static_cast<uint32_t>(row));
    x.seen = places.has(from);
    if (x.seen) x.share = fetch<V>(share + from * share_stride + i);
    if (before != nullptr) x.before = fetch<V>(before + row * stride + i);
    return x;
  }
  template <int V>
  __device__ __forceinline__ void store(int64_t row, int64_t i, const Loaded<V>& x) const {
    const auto added = values<T, V>(x.share);
    const auto old = values<float, V>(x.before);
    Vals<float, V> sum;
#pragma unroll
    for (int k = 0; k < V; ++k) sum.v[k] = (before != nullptr ? old.v[k] : 0.f) + (x.seen ? added.v[k] : 0.f);
    cuda::store<V>(dq + row * stride + i, sum);
  }
};

}  // namespace

template <class T, class O>
void merge_hop(const AttentionShape& s, const AttentionPart::Rows& part, const T* hop_o, int64_t hop_stride,
               const float* hop_lse, const float* o_before, const float* lse_before, O* o, float* lse,
               Stream stream) {
  const bool wide = all_aligned16(o_before, o);
  const int64_t across = s.value_dim / (wide ? kWide<float> : 1);
  if (across < 1 || across > kMergeThreads)
    fail("attention_hop: heads of " + std::to_string(s.value_dim) + " elements are too large");
  const auto kernel = wide ? merge_kernel<kWide<float>, T, O> : merge_kernel<1, T, O>;
  const MergeShape shape{Places(s.q_rows, part), s.q_rows.rows(), static_cast<int>(s.value_dim), hop_stride,
                         s.o_stride};
  const dim3 grid(static_cast<unsigned>(divide_up(shape.rows, kMergeRows)), static_cast<unsigned>(s.heads));
  const auto threads = static_cast<unsigned>(kMergeThreads / across * across);
  kernel<<<grid, threads, 0, stream>>>(shape, hop_o, hop_lse, o_before, lse_before, o, lse);
  check_launch("attention_hop");
}

template <class T, class O>
void add_hop_dq(const AttentionShape& s, const AttentionPart::Rows& part, const T* share,
                int64_t share_stride, const float* dq_before, O* dq, Stream stream) {
  each_row<kWide<float>, 4>(
      AddShare<T, O>{Places(s.q_rows, part), share_stride, s.dq_stride, share, dq_before, dq},
      s.q_rows.rows(), s.heads * s.head_dim, all_aligned16(dq_before, dq), stream, "attention_hop_backward");
}

#define INSTANTIATE(T, O)                             \
  template decltype(merge_hop<T, O>) merge_hop<T, O>; \
  template decltype(add_hop_dq<T, O>) add_hop_dq<T, O>;
INSTANTIATE(Bf16, float)
INSTANTIATE(Bf16, Bf16)
INSTANTIATE(F16, float)
INSTANTIATE(F16, F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
