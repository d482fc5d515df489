// The steps around cuDNN: rows are sorted into ascending order, and its results are merged with those of
// earlier hops.
#include "kernels/cuda/attention/hops.h"
#include "kernels/cuda/attention/merge.h"
#include "kernels/cuda/attention/places.cuh"
#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda_scratch/attention.h"

namespace quintet::kernels::cuda {
namespace {

// Rows in Quintet's order from ascending ones; those that take no part are zero. `from` null: only the zeros.
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

// Ascending rows from Quintet's order.
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
// [lists, rows], the layout of statistics and documents.
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

// Sorts the operands of a call into ascending order, in the scratch.
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

// Calls hop(ring rank of the keys, offset of its rows in k and v, first, last), the queries' own rank first:
// there every query sees a key.
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
  merge_hop(s, part.q, hop_o, t.o_stride, hop_lse, o_before, lse_before, o, lse, stream);
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
  add_hop_dq(s, part.q, share, t.dq_stride, dq_before, dq, stream);
  if (!scratch.sorts && part.k.count == part.k.pitch) return;  // all rows are covered
  const auto place = [&](const T* from, int64_t from_stride, T* to, int64_t stride, int64_t width) {
    each_row<kWide<T>, 4>(PlaceRows<T>{Places(s.k_rows, part.k), from_stride, stride, from, to},
                          s.k_rows.rows(), width, all_aligned16(to), stream, "attention_hop_backward");
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
