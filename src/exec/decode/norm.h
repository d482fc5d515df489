// Arguments of norms, for the kernels of every backend (see exec/decode/sizes.h).
#pragma once

#include "exec/decode/sizes.h"

namespace quintet::exec {

// Rows and elements per row of a norm: it covers the last `whole` dims of x together (1 unless it says so).
inline int64_t norm_size(const program::Instr& i) {
  const graph::Type& x = i.in[0].type;
  int64_t size = 1;
  for (int d = x.num_dims() - graph::norm_dims(i.attrs); d < x.num_dims(); ++d) size *= x.size(d);
  return size;
}
inline int64_t norm_rows(const program::Instr& i) {
  const int64_t size = norm_size(i);
  return size == 0 ? 0 : i.in[0].type.count() / size;
}

}  // namespace quintet::exec

namespace quintet::exec::decode {

// What is added to the weights of an RMSNorm.
inline double norm_offset(const Operands& b) {
  const graph::AttrValue* const offset = b.instr->attrs.find("offset");
  return offset != nullptr ? std::get<double>(*offset) : 0.0;
}

template <class K>
void rms_norm(const Operands& b, K&& kernel) {  // x, w -> y, rstd
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.output<T>(0), b.output<Stat<T>>(1), norm_rows(*b.instr),
           norm_size(*b.instr), b.instr->attrs.real("eps"));
  });
}
template <class K>
void add_rms_norm(const Operands& b, K&& kernel) {  // x, residual, w -> sum, y, rstd
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<T>(1),
           b.output<Stat<T>>(2), norm_rows(*b.instr), norm_size(*b.instr), b.instr->attrs.real("eps"));
  });
}
template <class K>
void rms_norm_dx(const Operands& b, K&& kernel) {  // dy, x, w, rstd[, addend] -> dx
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<Stat<T>>(3), b.last_input<T>(4),
           b.output<T>(0), norm_rows(*b.instr), norm_size(*b.instr));
  });
}
template <class Bound, class K>
void rms_norm_dw(const Bound& bound, bool accumulate, K&& kernel) {  // dy, x, rstd -> dw
  const Operands& b = bound;
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    with_gradients<T>(bound, {0}, accumulate, [&](auto& dw, bool add, std::byte* workspace) {
      kernel(t, b.input<T>(0), b.input<T>(1), b.input<Stat<T>>(2), dw[0], add, norm_rows(*b.instr),
             norm_size(*b.instr), workspace);
    });
  });
}
template <class Bound, class K>
void rms_norm_backward(const Bound& bound, bool accumulate,
                       K&& kernel) {  // dy, x, w, rstd[, addend] -> dx, dw[, y]
  const Operands& b = bound;
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    with_gradients<T>(bound, {1}, accumulate, [&](auto& dw, bool add, std::byte* workspace) {
      kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<Stat<T>>(3), b.last_input<T>(4),
             b.output<T>(0), b.last_output<T>(2), dw[0], add, norm_rows(*b.instr), norm_size(*b.instr),
             workspace);
    });
  });
}

template <class K>
void layer_norm(const Operands& b, K&& kernel) {  // x, w, b -> y, mean, rstd
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<Stat<T>>(1),
           b.output<Stat<T>>(2), num_rows(x), last_size(x), b.instr->attrs.real("eps"));
  });
}
template <class K>
void add_layer_norm(const Operands& b, K&& kernel) {  // x, residual, w, b -> sum, y, mean, rstd
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.output<T>(0), b.output<T>(1),
           b.output<Stat<T>>(2), b.output<Stat<T>>(3), num_rows(x), last_size(x), b.instr->attrs.real("eps"));
  });
}
template <class K>
void layer_norm_dx(const Operands& b, K&& kernel) {  // dy, x, w, mean, rstd[, addend] -> dx
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<Stat<T>>(3), b.input<Stat<T>>(4),
           b.last_input<T>(5), b.output<T>(0), num_rows(x), last_size(x));
  });
}
template <class Bound, class K>
void layer_norm_dw(const Bound& bound, bool accumulate, K&& kernel) {  // dy, x, mean, rstd -> dw[, db]
  const Operands& b = bound;
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    with_gradients<T>(bound, {0, 1}, accumulate, [&](auto& to, bool add, std::byte* workspace) {
      kernel(t, b.input<T>(0), b.input<T>(1), b.input<Stat<T>>(2), b.input<Stat<T>>(3), to[0], to[1], add,
             num_rows(x), last_size(x), workspace);
    });
  });
}
// dy, x, w, b, mean, rstd [, addend] -> dx, dw [, db] [, y]
template <class Bound, class K>
void layer_norm_backward(const Bound& bound, bool accumulate, K&& kernel) {
  const Operands& b = bound;
  const graph::Type& x = b.in_type(0);
  const bool bias = b.instr->attrs.integer("bias") != 0, again = b.instr->attrs.integer("again") != 0;
  with_type(x.dtype, [&]<class T>(T t) {
    const auto with = [&](auto* dw, auto* db, bool add, std::byte* workspace) {
      kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.input<Stat<T>>(4),
             b.input<Stat<T>>(5), b.last_input<T>(6), b.output<T>(0),
             again ? b.output<T>(bias ? 3 : 2) : nullptr, dw, db, add, num_rows(x), last_size(x), workspace);
    };
    if (bias)
      with_gradients<T>(bound, {1, 2}, accumulate, [&](auto& to, bool add, std::byte* workspace) {
        with(to[0], to[1], add, workspace);
      });
    else
      with_gradients<T>(bound, {1}, accumulate, [&](auto& to, bool add, std::byte* workspace) {
        with(to[0], decltype(+to[0]){nullptr}, add, workspace);
      });
  });
}

}  // namespace quintet::exec::decode
