// Arguments of dispatch to experts, their matmuls and activation, for the kernels of every backend (see
// exec/decode/sizes.h).
#pragma once

#include "exec/decode/sizes.h"
#include "kernels/gate.h"
#include "kernels/gemm_args.h"
#include "kernels/routing_shapes.h"

namespace quintet::exec {

inline bool is_padded(const program::Instr& instr) { return instr.attrs.integer("pad") > 0; }

// Grouped GEMMs. linear and dx: x or dy, w, received[, addend]; dw: dy, x, received.
kernels::GroupedArgs grouped_linear_args(const Operands& b);
kernels::GroupedArgs grouped_linear_dw_args(const Operands& b, bool accumulate);

namespace decode {

template <class K>
void route(const Operands& b, K&& kernel) {  // kept -> order, send
  const graph::Type& kept = b.in_type(0);
  kernel(b.input<int32_t>(0), kept.size(0), kept.size(1), b.out_type(1).size(0), is_padded(*b.instr),
         b.out_type(0).size(0), b.output<int32_t>(0), b.output<int32_t>(1));
}
template <class K>
void split_rows(const Operands& b, K&& kernel) {  // order, counts[, pass] -> order, send, received, passes
  const graph::Attrs& attrs = b.instr->attrs;
  const int64_t all = attrs.integer("all_experts");
  const program::Part* const part = b.part(graph::Dim::Counts);
  QUINTET_CHECK(part != nullptr, "[split_rows] does not know its position in the group");
  kernel(kernels::PassShape{.members = b.in_type(1).size(0) / all,
                            .all_experts = all,
                            .experts = attrs.integer("experts"),
                            .copies = attrs.integer("copies"),
                            .rows = attrs.integer("rows"),
                            .position = part->begin,
                            .slots = b.in_type(0).size(0)},
         b.input<int32_t>(0), b.input<int32_t>(1), b.last_input<int32_t>(2), b.output<int32_t>(0),
         b.output<int32_t>(1), b.output<int32_t>(2), b.output<int32_t>(3));
}
template <class K>
void pack(const Operands& b, K&& kernel) {  // x, order -> packed
  kernel(b.in[0], b.input<int32_t>(1), b.in_type(0).size(0), b.instr->attrs.integer("choices"),
         is_padded(*b.instr), b.out[0], b.out_type(0).size(0), row_bytes(b.out_type(0)));
}
template <class K>
void unpack(const Operands& b, K&& kernel) {  // packed, order[, addend] -> x
  const graph::Type &y = b.in_type(0), &x = b.out_type(0);
  with_type(y.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<int32_t>(1), y.size(0), b.instr->attrs.integer("choices"),
           b.last_input<T>(2), b.output<T>(0), x.size(0), columns(x));
  });
}
// Weights are passed as Stat<T>.
template <class K>
void pack_weights(const Operands& b, K&& kernel) {  // weights, order -> packed
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    kernel(Stat<T>{}, b.input<Stat<T>>(0), b.input<int32_t>(1), is_padded(*b.instr), b.output<Stat<T>>(0),
           b.out_type(0).size(0));
  });
}
template <class K>
void unpack_weights(const Operands& b, K&& kernel) {  // packed, order[, addend] -> weights
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    kernel(Stat<T>{}, b.input<Stat<T>>(0), b.input<int32_t>(1), b.in_type(0).size(0),
           b.last_input<Stat<T>>(2), b.output<Stat<T>>(0), b.out_type(0).count());
  });
}
template <class K>
void regroup(const Operands& b, K&& kernel) {  // value, received -> value
  const graph::Type& value = b.in_type(0);
  const int64_t experts = b.instr->attrs.integer("experts");
  kernel(b.in[0], b.input<int32_t>(1), b.in_type(1).size(0) / experts, experts,
         b.instr->attrs.integer("inverse") != 0, b.out[0], value.size(0), row_bytes(value));
}
template <class K>
void sum_copies(const Operands& b, K&& kernel) {
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.instr->attrs.integer("copies"), b.output<T>(0), b.out_type(0).count());
  });
}

// Counts of rows, and the planned maximum of their sum, which the backend computes.
struct Received {
  const int32_t* counts;
  int64_t num_counts, most;
};
inline Received received_in(const Operands& b, size_t operand, int64_t most) {
  return {b.input<int32_t>(operand), b.in_type(operand).count(), most};
}
inline kernels::ExpertGate expert_gate(const Operands& b) {
  const graph::Attrs& attrs = b.instr->attrs;
  if (attrs.find("limit") == nullptr) return {};
  return {.alpha = attrs.real("alpha"), .limit = attrs.real("limit")};
}
template <class K>
void expert_act(const Operands& b, K&& kernel) {  // gate, up, weight, received -> h
  const graph::Type& gate = b.in_type(0);
  with_type(gate.dtype, [&]<class T>(T t) {
    kernel(t, received_in(b, 3, gate.size(0)), gate.size(1), b.input<T>(0), b.input<T>(1),
           b.input<Stat<T>>(2), b.output<T>(0));
  });
}
template <class K>
void expert_act_dx(const Operands& b, K&& kernel) {  // dh, gate, up, weight, received -> dgate, dup, dweight
  const graph::Type& gate = b.in_type(1);
  with_type(gate.dtype, [&]<class T>(T t) {
    kernel(t, received_in(b, 4, gate.size(0)), gate.size(1), b.input<T>(0), b.input<T>(1), b.input<T>(2),
           b.input<Stat<T>>(3), b.output<T>(0), b.output<T>(1), b.output<Stat<T>>(2));
  });
}

template <class K>
void expert_bias(const Operands& b, K&& kernel) {  // y, b, received -> y
  const graph::Type& bias = b.in_type(1);
  with_type(bias.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<int32_t>(2), bias.size(0),
           b.in_type(2).size(0) / std::max<int64_t>(bias.size(0), 1), b.output<T>(0), bias.size(1));
  });
}
template <class Bound, class K>
void expert_bias_dw(const Bound& bound, bool accumulate, K&& kernel) {  // dy, received -> db
  const Operands& b = bound;
  const graph::Type& db = b.out_type(0);
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    with_gradients<T>(bound, {0}, accumulate, [&](auto& to, bool add, std::byte*) {
      kernel(t, b.input<T>(0), b.input<int32_t>(1), db.size(0),
             b.in_type(1).size(0) / std::max<int64_t>(db.size(0), 1), to[0], add, db.size(1));
    });
  });
}
// Numbers in f32 or f64.
template <class K>
void spread_choices(const Operands& b, K&& kernel) {  // weights, chosen -> by expert
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    kernel(Stat<T>{}, b.input<Stat<T>>(0), b.input<int32_t>(1), b.output<Stat<T>>(0), b.in_type(0).size(0),
           b.in_type(0).size(1), b.out_type(0).size(1));
  });
}
template <class K>
void gather_choices(const Operands& b, K&& kernel) {  // by expert, chosen -> numbers
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    kernel(Stat<T>{}, b.input<Stat<T>>(0), b.input<int32_t>(1), b.output<Stat<T>>(0), b.in_type(0).size(0),
           b.in_type(1).size(1), b.in_type(0).size(1));
  });
}

template <class K>
void scale_rows(const Operands& b, K&& kernel) {  // y, gate -> z
  const graph::Type& y = b.in_type(0);
  with_type(y.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.output<T>(0), y.size(0), y.size(1));
  });
}
template <class K>
void scale_rows_dx(const Operands& b, K&& kernel) {  // dz, y, gate -> dy, dgate
  const graph::Type& y = b.in_type(1);
  with_type(y.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<T>(1), y.size(0),
           y.size(1));
  });
}

}  // namespace decode
}  // namespace quintet::exec
