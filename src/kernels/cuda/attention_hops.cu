// What stands around the library: rows are brought into ascending order, results are merged by their shares
// of the sums of exponentials, dq is added up, and rows that take no part keep what they had, or are zero.
#include "kernels/attention_part.h"
#include "kernels/cuda/attention_hops.h"
#include "kernels/cuda/each.cuh"
#include "kernels/cuda_sizes/attention.h"

namespace quintet::kernels::cuda {
namespace {

// Of a row of ours: its place in ascending order (kernels/attention_part.h), and whether it takes part. Rows
// are below 2^31.
struct Places {
  uint32_t sequences, length, ranks;  // of a run; ranks in the buffer
  uint32_t first, count, pitch;       // AttentionPart::Rows

  Places(const base::RowOrder& order, const AttentionPart::Rows& part)
      : sequences(static_cast<uint32_t>(order.sequences)),
        length(static_cast<uint32_t>(order.run_length())),
        ranks(static_cast<uint32_t>(order.count)),
        first(static_cast<uint32_t>(part.first)),
        count(static_cast<uint32_t>(part.count)),
        pitch(static_cast<uint32_t>(part.pitch)) {}

  // Ours: [rank][sequence][two chunks]. Ascending: [sequence][early chunks, late chunks of falling ranks].
  __device__ __forceinline__ uint32_t of(uint32_t row) const {
    if (ranks == 1) return row;
    const uint32_t chunk = row / length, pair = chunk / 2, rank = pair / sequences;
    const uint32_t run = chunk % 2 == 0 ? rank : 2 * ranks - 1 - rank;
    return (pair % sequences * (2 * ranks) + run) * length + row % length;
  }
  __device__ __forceinline__ bool has(uint32_t place) const {
    return place % pitch - first < count;  // below first: wraps around
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

struct MergeShape {
  Places places;
  int64_t rows;
  int width;                 // of a head
  int64_t stride, o_stride;  // of the hop's o, and of ours
};

// One head of kMergeRows rows. The statistics of a row are read and written by one thread, every element of o
// by one: both may be in place.
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
  const int packs = rows * s.width / V;
  for (int first = thread; first < packs; first += kMergeThreads * kMergeUnroll) {
    Pack<T, V> mine[kMergeUnroll];
    Pack<float, V> before[kMergeUnroll];
#pragma unroll
    for (int u = 0; u < kMergeUnroll; ++u) {
      const int at = (first + u * kMergeThreads) * V, i = at / s.width, d = at % s.width;
      if (i >= rows) break;
      if (own_share[i] != 0.f) mine[u] = fetch<V>(hop_o + place[i] * s.stride + head * s.width + d);
      if (old_share[i] != 0.f) before[u] = fetch<V>(o_before + corner + i * s.o_stride + d);
    }
#pragma unroll
    for (int u = 0; u < kMergeUnroll; ++u) {
      const int at = (first + u * kMergeThreads) * V, i = at / s.width, d = at % s.width;
      if (i >= rows) break;
      const float own = own_share[i], old = old_share[i];
      if (own == 0.f && old == 1.f && in_place) continue;
      // Chosen, not multiplied: what counts for nothing may be anything.
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

// dq = dq_before + the share.
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

// Rows of ours from ascending ones, zero where they take no part; `from` null: the others stay as they are.
template <class T>
struct PlaceRows {
  Places places;
  int64_t from_stride, stride;
  const T* from;
  T* to;

  template <int V>
  struct Loaded {
    bool seen;
    Pack<T, V> x;
  };
  template <int V>
  __device__ __forceinline__ Loaded<V> load(int64_t row, int64_t i) const {
    const uint32_t place = places.of(static_cast<uint32_t>(row));
    Loaded<V> l{places.has(place), {}};
    if (l.seen && from != nullptr) l.x = fetch<V>(from + place * from_stride + i);
    return l;
  }
  template <int V>
  __device__ __forceinline__ void store(int64_t row, int64_t i, const Loaded<V>& l) const {
    if (!l.seen || from != nullptr) put<V>(to + row * stride + i, l.seen ? l.x : Pack<T, V>{});
  }
};

// Ascending rows from ours.
template <class T>
struct SortRows {
  Places places;
  int64_t stride, to_stride;
  const T* from;
  T* to;

  template <int V>
  __device__ __forceinline__ Pack<T, V> load(int64_t row, int64_t i) const {
    return fetch<V>(from + row * stride + i);
  }
  template <int V>
  __device__ __forceinline__ void store(int64_t row, int64_t i, Pack<T, V> x) const {
    put<V>(to + places.of(static_cast<uint32_t>(row)) * to_stride + i, x);
  }
};
// [lists, rows], as statistics and documents lie.
template <class T>
struct SortColumns {
  Places places;
  int64_t rows;
  const T* from;
  T* to;

  template <int V>
  __device__ __forceinline__ T load(int64_t list, int64_t row) const {
    return from[list * rows + row];
  }
  template <int V>
  __device__ __forceinline__ void store(int64_t list, int64_t row, T x) const {
    to[list * rows + places.of(static_cast<uint32_t>(row))] = x;
  }
};

// Brings the operands of a call into ascending order, in the scratch.
class Sorter {
 public:
  Sorter(const AttentionShape& s, const AttentionPart& part, std::byte* memory, Stream stream)
      : q_(s.q_rows, part.q),
        k_(s.k_rows, part.k),
        q_rows_(s.q_rows.rows()),
        k_rows_(s.k_rows.rows()),
        memory_(memory),
        stream_(stream) {}

  template <class T>
  const T* queries(const T* from, int64_t stride, int64_t width, int64_t at) {
    return rows(q_, q_rows_, from, stride, width, at);
  }
  template <class T>
  const T* keys(const T* from, int64_t stride, int64_t width, int64_t at) {
    return rows(k_, k_rows_, from, stride, width, at);
  }
  template <class T>
  const T* columns(const T* from, int64_t lists, int64_t at) {
    T* const to = reinterpret_cast<T*>(memory_ + at);
    each_row<1, 4>(SortColumns<T>{q_, q_rows_, from, to}, lists, q_rows_, false, stream_, kWhat);
    return to;
  }

 private:
  static constexpr const char* kWhat = "attention, ascending rows";

  template <class T>
  const T* rows(const Places& places, int64_t count, const T* from, int64_t stride, int64_t width,
                int64_t at) {
    T* const to = reinterpret_cast<T*>(memory_ + at);
    each_row<kWide<T>, 4>(SortRows<T>{places, stride, width, from, to}, count, width, all_aligned16(from),
                          stream_, kWhat);
    return to;
  }

  Places q_, k_;
  int64_t q_rows_, k_rows_;
  std::byte* memory_;
  Stream stream_;
};

template <class T>
T* at(std::byte* memory, int64_t offset) {
  return reinterpret_cast<T*>(memory + offset);
}

// Calls hop(ring rank of the keys, rows of k and v before its own, first, last), the queries' own rank first:
// there every query sees something.
template <class F>
void each_source(const AttentionShape& s, F&& hop) {
  const int64_t n = AttentionHops::hops(s), own = s.q_rows.first / s.q_rows.count;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t source = (own + n - i) % n;
    hop(source, source * s.q_rows.rows(), i == 0, i == n - 1);
  }
}

}  // namespace

bool AttentionHops::prepare(const AttentionShape& s, AttentionMasks masks, bool backward,
                            int64_t workspace_bytes, base::DType type) {
  if (const int64_t n = hops(s); n > 1) {
    for (int64_t source = 0; source < n; ++source)
      if (!prepare(hop_shape(s, source), masks, backward, workspace_bytes - running_bytes(s, backward), type))
        return false;
    return true;
  }
  return library_.prepare(library_shape(s), masks, backward, workspace_bytes - hop_scratch(s, backward).bytes,
                          type);
}

template <class T, class O>
void AttentionHops::forward(const AttentionShape& s, AttentionMasks masks, const T* q, const T* k, const T* v,
                            const float* o_before, const float* lse_before, O* o, float* lse, void* workspace,
                            int64_t workspace_bytes, Stream stream) {
  auto* const memory = static_cast<std::byte*>(workspace);
  if (hops(s) > 1) {
    const int64_t taken = running_bytes(s, false);
    auto* const running = at<float>(memory, 0);
    return each_source(s, [&](int64_t source, int64_t rows, bool first, bool last) {
      const auto hop = [&](auto* to) {
        forward(hop_shape(s, source), masks, q, k + rows * s.k_stride, v + rows * s.v_stride,
                first ? o_before : running, first ? lse_before : lse, to, lse, memory + taken,
                workspace_bytes - taken, stream);
      };
      last ? hop(o) : hop(running);
    });
  }
  const HopScratch scratch = hop_scratch(s, false);
  AttentionShape t = library_shape(s);
  const AttentionPart part = *visible_part(t);
  if (scratch.sorts) {
    Sorter sort(s, part, memory, stream);
    q = sort.queries(q, s.q_stride, t.q_stride, scratch.q);
    k = sort.keys(k, s.k_stride, t.k_stride, scratch.k);
    v = sort.keys(v, s.v_stride, t.v_stride, scratch.v);
    if (masks == AttentionMasks::Documents)
      t.documents = t.key_documents = sort.columns(s.documents, 1, scratch.documents);
  }
  auto* const hop_o = at<T>(memory, scratch.o);
  auto* const hop_lse = at<float>(memory, scratch.lse);
  library_.forward<T>(t, masks, q, k, v, hop_o, hop_lse, memory + scratch.bytes,
                      workspace_bytes - scratch.bytes, stream);
  // Head sizes and strides are multiples of 8.
  constexpr int kPack = kWide<float>;
  const auto kernel = all_aligned16(o_before, o) ? merge_kernel<kPack, T, O> : merge_kernel<1, T, O>;
  const MergeShape shape{Places(s.q_rows, part.q), s.q_rows.rows(), static_cast<int>(s.value_dim), t.o_stride,
                         s.o_stride};
  const dim3 grid(static_cast<unsigned>(divide_up(shape.rows, kMergeRows)), static_cast<unsigned>(s.heads));
  kernel<<<grid, kMergeThreads, 0, stream>>>(shape, hop_o, hop_lse, o_before, lse_before, o, lse);
  check_launch("attention_hop");
}

template <class T, class O>
void AttentionHops::backward(const AttentionShape& s, AttentionMasks masks, const T* dout, const T* q,
                             const T* k, const T* v, const T* o, const float* lse, const float* dq_before,
                             O* dq, T* dk, T* dv, void* workspace, int64_t workspace_bytes, Stream stream) {
  auto* const memory = static_cast<std::byte*>(workspace);
  if (hops(s) > 1) {
    const int64_t taken = running_bytes(s, true);
    auto* const running = at<float>(memory, 0);
    return each_source(s, [&](int64_t source, int64_t rows, bool first, bool last) {
      const auto hop = [&](auto* to) {
        backward(hop_shape(s, source), masks, dout, q, k + rows * s.k_stride, v + rows * s.v_stride, o, lse,
                 first ? dq_before : running, to, dk + rows * s.dk_stride, dv + rows * s.dv_stride,
                 memory + taken, workspace_bytes - taken, stream);
      };
      last ? hop(dq) : hop(running);
    });
  }
  const HopScratch scratch = hop_scratch(s, true);
  AttentionShape t = library_shape(s);
  const AttentionPart part = *visible_part(t);
  T *own_dk = dk, *own_dv = dv;
  if (scratch.sorts) {
    Sorter sort(s, part, memory, stream);
    q = sort.queries(q, s.q_stride, t.q_stride, scratch.q);
    k = sort.keys(k, s.k_stride, t.k_stride, scratch.k);
    v = sort.keys(v, s.v_stride, t.v_stride, scratch.v);
    o = sort.queries(o, s.o_stride, t.o_stride, scratch.o);
    dout = sort.queries(dout, s.o_stride, t.o_stride, scratch.dout);
    lse = sort.columns(lse, s.heads, scratch.lse);
    if (masks == AttentionMasks::Documents)
      t.documents = t.key_documents = sort.columns(s.documents, 1, scratch.documents);
    own_dk = at<T>(memory, scratch.dk);
    own_dv = at<T>(memory, scratch.dv);
  }
  auto* const share = at<T>(memory, scratch.dq);
  library_.backward<T>(t, masks, dout, q, k, v, o, lse, share, own_dk, own_dv, memory + scratch.bytes,
                       workspace_bytes - scratch.bytes, stream);
  const char* const what = "attention_hop_backward";
  each_row<kWide<float>, 4>(
      AddShare<T, O>{Places(s.q_rows, part.q), t.dq_stride, s.dq_stride, share, dq_before, dq},
      s.q_rows.rows(), s.heads * s.head_dim, all_aligned16(dq_before, dq), stream, what);
  if (!scratch.sorts && part.k.count == part.k.pitch) return;  // all is there
  const auto place = [&](const T* from, int64_t from_stride, T* to, int64_t stride, int64_t width) {
    each_row<kWide<T>, 4>(PlaceRows<T>{Places(s.k_rows, part.k), from_stride, stride, from, to},
                          s.k_rows.rows(), width, all_aligned16(to), stream, what);
  };
  place(scratch.sorts ? own_dk : nullptr, t.dk_stride, dk, s.dk_stride, s.kv_heads * s.head_dim);
  place(scratch.sorts ? own_dv : nullptr, t.dv_stride, dv, s.dv_stride, s.kv_heads * s.value_dim);
}

#define INSTANTIATE(T, O)                                                                                    \
  template void AttentionHops::forward(const AttentionShape&, AttentionMasks, const T*, const T*, const T*,  \
                                       const float*, const float*, O*, float*, void*, int64_t, Stream);      \
  template void AttentionHops::backward(const AttentionShape&, AttentionMasks, const T*, const T*, const T*, \
                                        const T*, const T*, const float*, const float*, O*, T*, T*, void*,   \
                                        int64_t, Stream);
INSTANTIATE(Bf16, float)
INSTANTIATE(Bf16, Bf16)
INSTANTIATE(F16, float)
INSTANTIATE(F16, F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
