// Arguments of attention, whole and by hops of a ring, for the kernels of every backend (see
// exec/decode/sizes.h). Further arguments of CUDA's kernels are in exec/decode/cuda_attention.h.
#pragma once

#include "exec/decode/sizes.h"
#include "kernels/attention_geometry.h"

namespace quintet::exec {

// The operand indices of an attention.
struct AttentionPlaces {
  const graph::OpDef* op;
  bool backward;     // operand 0 is then the gradient of the result
  size_t q;          // q, k and v, or the one value that packs them
  size_t o;          // backward: the forward result; lse follows
  size_t documents;  // of queries, then of keys; with dropout samples, positions, key positions and the seed
};
// Null for all other instructions.
const AttentionPlaces* attention_places(const program::Instr& instr);

// Whether q, k and v are packed in one value (qkv_attention).
inline bool has_packed_qkv(const program::Instr& instr) { return instr.attrs.find("kv_heads") != nullptr; }
// Whether documents must be distinguished: with packed = 0 every sequence is one document.
inline bool has_documents(const program::Instr& instr) { return instr.attrs.integer("packed") != 0; }
inline bool is_hop(const program::Instr& instr) { return instr.attrs.find("hop") != nullptr; }

// Without pointers.
kernels::AttentionGeometry attention_geometry(const program::Instr& instr);
// With pointers to documents and, with dropout, to samples and positions.
kernels::AttentionGeometry attention_rows(const Operands& operands);
// The operand from which the dropout key is derived.
size_t dropout_seed(const program::Instr& instr);
// The operands of a hop that hold the results of earlier hops.
size_t results_before(const program::Instr& instr);

namespace decode {

template <class T>
struct Qkv {
  T *q, *k, *v;
};
// Three operands from `first` on, or the columns of one.
template <class T>
Qkv<T> qkv_in(const Operands& b, const std::vector<std::byte*>& operands, size_t first,
              const kernels::AttentionGeometry& s) {
  const auto at = [&](size_t i) { return reinterpret_cast<T*>(operands[i]); };
  if (!has_packed_qkv(*b.instr)) return {at(first), at(first + 1), at(first + 2)};
  return {at(first), at(first) + s.heads * s.head_dim, at(first) + (s.heads + s.kv_heads) * s.head_dim};
}

// A result of earlier hops; null in the first.
template <class S>
S* before(const Operands& b, size_t i) {
  return b.instr->attrs.integer("hop") == 0 ? nullptr : b.input<S>(results_before(*b.instr) + i);
}

template <class K>
void attention(const Operands& b, const kernels::AttentionGeometry& s, K&& kernel) {
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    const Qkv<T> in = qkv_in<T>(b, b.in, 0, s);
    kernel(t, in.q, in.k, in.v, b.output<T>(0), b.output<Stat<T>>(1));
  });
}
template <class K>
void attention_hop(const Operands& b, K&& kernel) {
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    using S = Stat<T>;
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), before<S>(b, 0), before<S>(b, 1), b.output<S>(0),
           b.output<S>(1));
  });
}
template <class K>
void attention_dx(const Operands& b, const kernels::AttentionGeometry& s, K&& kernel) {
  const size_t o = attention_places(*b.instr)->o;
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    const Qkv<T> in = qkv_in<T>(b, b.in, 1, s), out = qkv_in<T>(b, b.out, 0, s);
    kernel(t, b.input<T>(0), in.q, in.k, in.v, b.input<T>(o), b.input<Stat<T>>(o + 1), out.q, out.k, out.v);
  });
}
template <class K>
void attention_hop_dx(const Operands& b, K&& kernel) {
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    using S = Stat<T>;
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.input<T>(4), b.input<S>(5),
           before<S>(b, 0), b.output<S>(0), b.output<T>(1), b.output<T>(2));
  });
}

template <class K>
void attention_sink(const Operands& b, K&& kernel) {  // o, lse, sink -> o, lse
  const graph::Type& o = b.in_type(0);
  with_type(o.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<Stat<T>>(1), b.input<T>(2), b.output<T>(0), b.output<Stat<T>>(1),
           o.size(0), o.size(1), o.size(2));
  });
}
template <class Bound, class K>
void attention_sink_dw(const Bound& bound, bool accumulate, K&& kernel) {  // do, o, lse, sink -> dsink
  const Operands& b = bound;
  const graph::Type& o = b.in_type(1);
  with_type(o.dtype, [&]<class T>(T t) {
    with_gradients<T>(bound, {0}, accumulate, [&](auto& to, bool add, std::byte*) {
      kernel(t, b.input<T>(0), b.input<T>(1), b.input<Stat<T>>(2), b.input<T>(3), to[0], add, o.size(0),
             o.size(1), o.size(2));
    });
  });
}

}  // namespace decode
}  // namespace quintet::exec
