// Arguments of rotary positions, activations, sums, casts, dropout and concatenation of heads, for the
// kernels of every backend (see exec/decode/sizes.h).
#pragma once

#include "exec/decode/sizes.h"
#include "kernels/gate.h"

namespace quintet::exec::decode {

// Number of heads of x that rope (all) or rope_first rotates.
inline int64_t rotated_heads(const program::Instr& instr) {
  return instr.attrs.find("heads") != nullptr ? instr.attrs.integer("heads") : instr.in[0].type.size(1);
}
// Elements of each head that are rotated.
inline int64_t rotated_elements(const Operands& b) {
  return 2 * static_cast<int64_t>(b.instr->attrs.reals("inv_freq").size());
}
// `frequencies` are those of the attribute inv_freq, in the backend's memory.
template <class K>
void rope(const Operands& b, const double* frequencies, K&& kernel) {  // x, positions -> y
  const graph::Type& x = b.in_type(0);
  const graph::Attrs& a = b.instr->attrs;
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), columns(x), b.input<int32_t>(1), frequencies, a.real("scale"), b.output<T>(0),
           columns(x), x.size(0), rotated_heads(*b.instr), x.size(2), a.integer("inverse") != 0);
  });
}
// Bytes of every row that rope leaves unchanged, to be copied: none if it works in place.
struct RowBytes {
  int64_t rows, first, bytes, stride;
};
inline RowBytes unrotated(const Operands& b) {
  const graph::Type& x = b.in_type(0);
  const int64_t stride = row_bytes(x), first = rotated_heads(*b.instr) * x.size(2) * base::size_of(x.dtype);
  return {x.size(0), first, b.in[0] == b.out[0] ? 0 : stride - first, stride};
}

inline kernels::Gate gate_of(const Operands& b) {
  return b.instr->attrs.find("act") != nullptr ? kernels::Gate::GeluTanh : kernels::Gate::Silu;
}
inline kernels::GeluForm gelu_form(const Operands& b) {
  return b.instr->attrs.find("form") != nullptr ? kernels::GeluForm::Erf : kernels::GeluForm::Tanh;
}

// Gate and up, or their gradients: separate operands, or halves of the rows of one.
template <class T>
struct GateUp {
  T *gate, *up;
  int64_t stride;  // from row to row
};
template <class T>
GateUp<T> gate_up_in(const std::vector<std::byte*>& operands, size_t first, bool halves, int64_t width) {
  T* const gate = reinterpret_cast<T*>(operands[first]);
  if (halves) return {gate, gate + width, 2 * width};
  return {gate, reinterpret_cast<T*>(operands[first + 1]), width};
}
template <class K>
void swiglu(const Operands& b, K&& kernel) {  // gate, up (or both in one) -> y
  const graph::Type& y = b.out_type(0);
  with_type(y.dtype, [&]<class T>(T t) {
    const GateUp<T> in = gate_up_in<T>(b.in, 0, b.in.size() == 1, columns(y));
    kernel(t, in.gate, in.up, in.stride, b.output<T>(0), y.size(0), columns(y));
  });
}
// swiglu_dx, and swiglu_backward, whose last result is y.
template <class K>
void swiglu_gradients(const Operands& b, K&& kernel) {  // dy, gate, up -> dgate, dup[, y]
  const graph::Type& dy = b.in_type(0);
  const bool halves = b.in.size() == 2;
  with_type(dy.dtype, [&]<class T>(T t) {
    const GateUp<T> in = gate_up_in<T>(b.in, 1, halves, columns(dy)),
                    out = gate_up_in<T>(b.out, 0, halves, columns(dy));
    kernel(t, b.input<T>(0), in.gate, in.up, in.stride, out.gate, out.up, b.last_output<T>(halves ? 1 : 2),
           dy.size(0), columns(dy));
  });
}

// Elementwise from one value to another.
template <class K>
void map(const Operands& b, K&& kernel) {  // x -> y
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) { kernel(t, b.input<T>(0), b.output<T>(0), x.count()); });
}
template <class K>
void map_two(const Operands& b, K&& kernel) {  // x, z -> y
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype,
            [&]<class T>(T t) { kernel(t, b.input<T>(0), b.input<T>(1), b.output<T>(0), x.count()); });
}
// The same with a number among the attributes.
template <class K>
void map_by(const Operands& b, std::string_view number, K&& kernel) {  // x -> y
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.instr->attrs.real(number), b.output<T>(0), x.count());
  });
}
template <class K>
void map_two_by(const Operands& b, std::string_view number, K&& kernel) {  // x, z -> y
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.instr->attrs.real(number), b.output<T>(0), x.count());
  });
}
template <class K>
void cast(const Operands& b, K&& kernel) {
  with_type(b.in_type(0).dtype, [&]<class X>(X) {
    with_type(b.out_type(0).dtype,
              [&]<class Y>(Y) { kernel(b.input<X>(0), b.output<Y>(0), b.in_type(0).count()); });
  });
}
template <class K>
void bias_add(const Operands& b, K&& kernel) {  // x, bias -> y
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.output<T>(0), x.size(0), columns(x));
  });
}
// Ops of graph/ops/rows.cc. With whole rows: x of `rows` rows of n; else of n elements.
template <class K>
void center(const Operands& b, K&& kernel) {  // x -> y
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.output<T>(0), num_rows(b.in_type(0)), last_size(b.in_type(0)));
  });
}
template <class K>
void unit_norm(const Operands& b, K&& kernel) {  // x -> y
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.output<T>(0), num_rows(b.in_type(0)), last_size(b.in_type(0)),
           b.instr->attrs.real("eps"));
  });
}
template <class K>
void unit_norm_dx(const Operands& b, K&& kernel) {  // dy, x -> dx
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.output<T>(0), num_rows(b.in_type(0)), last_size(b.in_type(0)),
           b.instr->attrs.real("eps"));
  });
}
template <class K>
void position_scale(const Operands& b, K&& kernel) {  // x, positions -> y
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<int32_t>(1), b.output<T>(0), x.size(0), columns(x),
           b.instr->attrs.real("scale"), b.instr->attrs.integer("floor"));
  });
}
template <class K>
void split_documents(const Operands& b, K&& kernel) {  // documents, positions -> documents
  kernel(b.input<int32_t>(0), b.input<int32_t>(1), b.output<int32_t>(0), b.in_type(0).count(),
         b.instr->attrs.integer("chunk"), b.instr->attrs.integer("seq_len"));
}
template <class Bound, class K>
void sum_rows(const Bound& bound, bool accumulate, K&& kernel) {  // x -> sums
  const Operands& b = bound;
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    with_gradients<T>(bound, {0}, accumulate, [&](auto& db, bool add, std::byte* workspace) {
      kernel(t, b.input<T>(0), db[0], add, x.size(0), columns(x), workspace);
    });
  });
}

inline constexpr size_t kDropoutSeed = 3;  // operand; the key is derived from it and the attribute salt
// `key` is the derived one: a number, or its address on the device.
template <class Key, class K>  // x, samples, positions, seed -> y: dropout, and jitter, with their `amount`
void drawn(const Operands& b, Key key, double amount, K&& kernel) {
  const graph::Type& x = b.in_type(0);
  const program::Part* const features = b.part(x.dims[1].name);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<int32_t>(1), b.input<int32_t>(2), key, amount, features->begin,
           b.output<T>(0), x.size(0), x.size(1));
  });
}

template <class K>
void join_heads(const Operands& b, K&& kernel) {  // x, y -> both in every head
  const graph::Type &x = b.in_type(0), &y = b.in_type(1);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), y.dims[1].name == graph::Dim::Choices, b.output<T>(0), x.size(0),
           x.size(1), x.size(2), y.size(2));
  });
}
template <class K>
void join_heads_dx(const Operands& b, K&& kernel) {
  const graph::Type &da = b.out_type(0), &db = b.out_type(1);
  with_type(da.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.instr->attrs.integer("shared") != 0, b.output<T>(0), b.output<T>(1),
           da.size(0), da.size(1), da.size(2), db.size(2));
  });
}

}  // namespace quintet::exec::decode
