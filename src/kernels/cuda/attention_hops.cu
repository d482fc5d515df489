// What stands around the library in a hop: results are merged by their shares of the sums of exponentials, dq
// is added up, and rows that take no part keep what they had, or are zero.
#include "kernels/attention_part.h"
#include "kernels/cuda/attention_hops.h"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda_sizes/attention.h"

namespace quintet::kernels::cuda {
namespace {

// AttentionPart::Rows for the device.
struct PartRows {
  uint32_t first, count, pitch;

  explicit PartRows(const AttentionPart::Rows& r)
      : first(static_cast<uint32_t>(r.first)),
        count(static_cast<uint32_t>(r.count)),
        pitch(static_cast<uint32_t>(r.pitch)) {}

  __device__ __forceinline__ bool has(int64_t row) const {
    return static_cast<uint32_t>(row) % pitch - first < count;  // below first: wraps around
  }
  // The n-th row, of all sequences, that is not in the part.
  __device__ __forceinline__ int64_t outside(int64_t n) const {
    const uint32_t others = pitch - count, at = static_cast<uint32_t>(n) % others;
    return static_cast<int64_t>(static_cast<uint32_t>(n) / others) * pitch + (at < first ? at : at + count);
  }
};

__device__ __forceinline__ float minus_infinity() { return -__int_as_float(0x7f800000); }

struct Share {
  float own, old, lse;
};
// Of one hop's result (when it has seen a key) and of what came before it in the result over all of their
// keys. Where one of them has seen nothing the other is taken as it is.
__device__ __forceinline__ Share share_of(bool seen, float own_lse, float earlier) {
  const float nothing = minus_infinity();
  if (!seen || (own_lse == nothing && earlier != nothing))
    return {0, earlier == nothing ? 0.f : 1.f, earlier};
  if (earlier == nothing) return {1, 0, own_lse};
  const float top = own_lse > earlier ? own_lse : earlier;
  const float all = top + logf(expf(earlier - top) + expf(own_lse - top));
  return {expf(own_lse - all), expf(earlier - all), all};
}

// One head of kMergeRows rows. The statistics of a row are read and written by one thread, every element of o
// by one: both may be in place.
inline constexpr int kMergeThreads = 256, kMergeRows = 32, kMergeUnroll = 4;
template <int V, class T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_kernel(PartRows part, int64_t all_rows, int width, int64_t stride, const T* hop_o,
                 const float* hop_lse, const float* o_before, const float* lse_before, float* o, float* lse) {
  await_previous();
  __shared__ float own_share[kMergeRows], old_share[kMergeRows];
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kMergeRows;
  const int rows = static_cast<int>(all_rows - row0 < kMergeRows ? all_rows - row0 : kMergeRows);
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < rows) {
    const int64_t row = row0 + thread, at = static_cast<int64_t>(blockIdx.y) * all_rows + row;
    const bool seen = part.has(row);
    const Share s =
        share_of(seen, seen ? hop_lse[at] : 0.f, lse_before != nullptr ? lse_before[at] : minus_infinity());
    own_share[thread] = s.own;
    old_share[thread] = s.old;
    lse[at] = s.lse;
  }
  __syncthreads();
  const int64_t corner = row0 * stride + static_cast<int64_t>(blockIdx.y) * width;
  const int packs = rows * width / V;
  for (int first = thread; first < packs; first += kMergeThreads * kMergeUnroll) {
    Pack<T, V> mine[kMergeUnroll];
    Pack<float, V> before[kMergeUnroll];
#pragma unroll
    for (int u = 0; u < kMergeUnroll; ++u) {
      const int at = (first + u * kMergeThreads) * V, i = at / width;
      const int64_t place = corner + i * stride + at % width;
      if (i < rows && own_share[i] != 0.f) mine[u] = fetch<V>(hop_o + place);
      if (i < rows && old_share[i] != 0.f) before[u] = fetch<V>(o_before + place);
    }
#pragma unroll
    for (int u = 0; u < kMergeUnroll; ++u) {
      const int at = (first + u * kMergeThreads) * V, i = at / width;
      if (i >= rows) break;
      const float own = own_share[i], old = old_share[i];
      if (own == 0.f && old == 1.f && o == o_before) continue;
      // Chosen, not multiplied: what counts for nothing may be anything.
      const auto new_values = values<T, V>(mine[u]);
      const auto old_values = values<float, V>(before[u]);
      Vals<float, V> sum;
#pragma unroll
      for (int k = 0; k < V; ++k)
        sum.v[k] = (own == 0.f ? 0.f : own * new_values.v[k]) + (old == 0.f ? 0.f : old * old_values.v[k]);
      store<V>(o + corner + i * stride + at % width, sum);
    }
  }
}

template <class T>
struct AddShare {
  PartRows part;
  int64_t stride;
  const T* share;
  const float* before;  // null: zero
  float* dq;

  template <int V>
  struct Loaded {
    Pack<T, V> share;
    Pack<float, V> before;
  };
  template <int V>
  __device__ __forceinline__ Loaded<V> load(int64_t row, int64_t i) const {
    Loaded<V> x;
    if (part.has(row)) x.share = fetch<V>(share + row * stride + i);
    if (before != nullptr) x.before = fetch<V>(before + row * stride + i);
    return x;
  }
  template <int V>
  __device__ __forceinline__ void store(int64_t row, int64_t i, const Loaded<V>& x) const {
    const bool seen = part.has(row);
    const auto added = values<T, V>(x.share);
    const auto old = values<float, V>(x.before);
    Vals<float, V> sum;
#pragma unroll
    for (int k = 0; k < V; ++k) sum.v[k] = (before != nullptr ? old.v[k] : 0.f) + (seen ? added.v[k] : 0.f);
    cuda::store<V>(dq + row * stride + i, sum);
  }
};

template <class T>
struct ZeroOutside {
  PartRows part;
  int64_t stride;
  T* to;

  struct Nothing {};
  template <int V>
  __device__ __forceinline__ Nothing load(int64_t, int64_t) const {
    return {};
  }
  template <int V>
  __device__ __forceinline__ void store(int64_t n, int64_t i, Nothing) const {
    Vals<float, V> zero;
#pragma unroll
    for (int k = 0; k < V; ++k) zero.v[k] = 0.f;
    cuda::store<V>(to + part.outside(n) * stride + i, zero);
  }
};
template <class T>
void zero_outside(const AttentionPart::Rows& part, int64_t sequences, T* to, int64_t stride, int64_t width,
                  Stream stream) {
  each_row<kWide<T>, 2>(ZeroOutside<T>{PartRows(part), stride, to}, sequences * (part.pitch - part.count),
                        width, all_aligned16(to), stream, "attention_hop_backward");
}

}  // namespace

bool AttentionHops::prepare(const AttentionShape& s, bool backward, int64_t workspace_bytes,
                            base::DType type) {
  return library_.prepare(s, AttentionMasks::Dense, backward,
                          workspace_bytes - hop_scratch(s, backward).bytes(), type);
}

template <class T>
void AttentionHops::forward(const AttentionShape& s, const T* q, const T* k, const T* v,
                            const float* o_before, const float* lse_before, float* o, float* lse,
                            void* workspace, int64_t workspace_bytes, Stream stream) {
  const HopScratch scratch = hop_scratch(s, false);
  auto* const memory = static_cast<std::byte*>(workspace);
  auto* const hop_o = reinterpret_cast<T*>(memory);
  auto* const hop_lse = reinterpret_cast<float*>(memory + scratch.rows);
  library_.forward<T>(s, AttentionMasks::Dense, q, k, v, hop_o, hop_lse, memory + scratch.bytes(),
                      workspace_bytes - scratch.bytes(), stream);
  // Head sizes and strides are multiples of 8.
  constexpr int kPack = kWide<float>;
  const auto kernel = all_aligned16(o_before, o, hop_o) ? merge_kernel<kPack, T> : merge_kernel<1, T>;
  const int64_t rows = s.q_rows.rows();
  const dim3 grid(static_cast<unsigned>(divide_up(rows, kMergeRows)), static_cast<unsigned>(s.heads));
  kernel<<<grid, kMergeThreads, 0, stream>>>(PartRows(visible_part(s)->q), rows,
                                             static_cast<int>(s.value_dim), s.o_stride, hop_o, hop_lse,
                                             o_before, lse_before, o, lse);
  check_launch("attention_hop");
}

template <class T>
void AttentionHops::backward(const AttentionShape& s, const T* dout, const T* q, const T* k, const T* v,
                             const T* o, const float* lse, const float* dq_before, float* dq, T* dk, T* dv,
                             void* workspace, int64_t workspace_bytes, Stream stream) {
  const HopScratch scratch = hop_scratch(s, true);
  auto* const memory = static_cast<std::byte*>(workspace);
  auto* const share = reinterpret_cast<T*>(memory);
  library_.backward<T>(s, AttentionMasks::Dense, dout, q, k, v, o, lse, share, dk, dv,
                       memory + scratch.bytes(), workspace_bytes - scratch.bytes(), stream);
  const AttentionPart part = *visible_part(s);
  each_row<kWide<float>, 4>(AddShare<T>{PartRows(part.q), s.dq_stride, share, dq_before, dq}, s.q_rows.rows(),
                            s.heads * s.head_dim, all_aligned16(dq_before, dq, share), stream,
                            "attention_hop_backward");
  zero_outside(part.k, s.k_rows.sequences, dk, s.dk_stride, s.kv_heads * s.head_dim, stream);
  zero_outside(part.k, s.k_rows.sequences, dv, s.dv_stride, s.kv_heads * s.value_dim, stream);
}

#define INSTANTIATE(T)                                                                                    \
  template void AttentionHops::forward(const AttentionShape&, const T*, const T*, const T*, const float*, \
                                       const float*, float*, float*, void*, int64_t, Stream);             \
  template void AttentionHops::backward(const AttentionShape&, const T*, const T*, const T*, const T*,    \
                                        const T*, const float*, const float*, float*, T*, T*, void*,      \
                                        int64_t, Stream);
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
