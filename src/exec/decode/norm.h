// Arguments of norms, for the kernels of every backend (see exec/decode/sizes.h).
#pragma once

#include "exec/decode/sizes.h"

namespace quintet::exec::decode {

template <class K>
void rms_norm(const Operands& b, K&& kernel) {  // x, w -> y, rstd
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.output<T>(0), b.output<Stat<T>>(1), num_rows(x), last_size(x),
           b.instr->attrs.real("eps"));
  });
}
template <class K>
void add_rms_norm(const Operands& b, K&& kernel) {  // x, residual, w -> sum, y, rstd
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<T>(1),
           b.output<Stat<T>>(2), num_rows(x), last_size(x), b.instr->attrs.real("eps"));
  });
}
template <class K>
void rms_norm_dx(const Operands& b, K&& kernel) {  // dy, x, w, rstd[, addend] -> dx
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<Stat<T>>(3), b.last_input<T>(4),
           b.output<T>(0), num_rows(x), last_size(x));
  });
}
template <class Bound, class K>
void rms_norm_dw(const Bound& bound, bool accumulate, K&& kernel) {  // dy, x, rstd -> dw
  const Operands& b = bound;
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    with_gradients<T>(bound, {0}, accumulate, [&](auto& dw, bool add, std::byte* workspace) {
      kernel(t, b.input<T>(0), b.input<T>(1), b.input<Stat<T>>(2), dw[0], add, num_rows(x), last_size(x),
             workspace);
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
             b.output<T>(0), b.last_output<T>(2), dw[0], add, num_rows(x), last_size(x), workspace);
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
