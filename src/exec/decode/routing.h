// Arguments of routers and load balancing, for the kernels of every backend (see
// exec/decode/sizes.h).
#pragma once

#include "exec/decode/sizes.h"
#include "kernels/routing_shapes.h"

namespace quintet::exec {

kernels::RouterShape router_shape(const program::Instr& instr);           // x, w -> logits
kernels::RouterShape router_backward_shape(const program::Instr& instr);  // dlogits, w or x -> dx, dw
kernels::SelectShape select_shape(const program::Instr& instr);
kernels::SelectShape select_dx_shape(const program::Instr& instr);
kernels::LimitShape limit_shape(const program::Instr& instr);
kernels::LoadShape load_shape(const program::Instr& instr);
// The rows whose sums belong together, out of `rows` rows: those of a sequence, or all.
base::RowOrder sums_order(const graph::Attrs& attrs, int64_t rows);

kernels::BalanceLoss balance_loss_shape(const program::Instr& instr);

namespace decode {

template <class K>
void router(const Operands& b, K&& kernel) {  // x, w -> logits
  with_type(b.in_type(0).dtype, [&]<class T>(T t) {
    kernel(t, router_shape(*b.instr), b.input<T>(0), b.input<T>(1), b.output<Stat<T>>(0));
  });
}
template <class K>
void router_dx(const Operands& b, K&& kernel) {  // dlogits, w -> dx
  with_type(b.in_type(1).dtype, [&]<class T>(T t) {
    kernel(t, router_backward_shape(*b.instr), b.input<Stat<T>>(0), b.input<T>(1), b.output<T>(0));
  });
}
template <class Bound, class K>
void router_dw(const Bound& bound, bool accumulate, K&& kernel) {  // dlogits, x -> dw
  const Operands& b = bound;
  with_type(b.in_type(1).dtype, [&]<class T>(T t) {
    with_gradients<T>(bound, {0}, accumulate, [&](auto& dw, bool add, std::byte* workspace) {
      kernel(t, router_backward_shape(*b.instr), b.input<Stat<T>>(0), b.input<T>(1), dw[0], add, workspace);
    });
  });
}

template <class K>
void select(const Operands& b, K&& kernel) {  // logits[, bias][, given] -> scores, chosen, weights
  const bool biased = b.instr->attrs.integer("biased") != 0, given = b.instr->in.size() > (biased ? 2u : 1u);
  with_stat(b.in_type(0).dtype, [&]<class S>(S s) {
    kernel(s, select_shape(*b.instr), b.input<S>(0), b.input_if<S>(biased ? 1 : -1),
           b.input_if<int32_t>(given ? (biased ? 2 : 1) : -1), b.output<S>(0), b.output<int32_t>(1),
           b.output<S>(2));
  });
}
template <class K>
void join_choices(const Operands& b, K&& kernel) {  // chosen of several blocks -> all of them
  const graph::Type& all = b.out_type(0);
  int64_t column = 0;
  for (size_t i = 0; i < b.instr->in.size(); ++i) {
    const int64_t k = b.in_type(i).size(1);
    kernel(b.input<int32_t>(i), k, b.output<int32_t>(0), column, all.size(1), all.size(0));
    column += k;
  }
}
template <class K>
void select_dx(const Operands& b, K&& kernel) {  // logits, chosen[, dweights][, dscores] -> dlogits
  const bool weights = b.instr->attrs.integer("has_dweights") != 0,
             scores = b.instr->attrs.integer("has_dscores") != 0;
  with_stat(b.in_type(0).dtype, [&]<class S>(S s) {
    kernel(s, select_dx_shape(*b.instr), b.input<S>(0), b.input<int32_t>(1), b.input_if<S>(weights ? 2 : -1),
           b.input_if<S>(scores ? (weights ? 3 : 2) : -1), b.output<S>(0));
  });
}
template <class K>
void limit(const Operands& b, K&& kernel) {  // chosen, weights -> kept
  with_stat(b.in_type(1).dtype, [&]<class S>(S s) {
    kernel(s, limit_shape(*b.instr), b.input<int32_t>(0), b.input<S>(1), b.output<int32_t>(0));
  });
}

// `key` is the one derived from operand kRandomSeed: a number, or its address on the device.
inline constexpr size_t kRandomSeed = 3;
template <class Key, class K>
void random_weights(const Operands& b, Key key, K&& kernel) {  // chosen, samples, positions, seed -> weights
  const graph::Type& weights = b.out_type(0);
  kernel(b.input<int32_t>(1), b.input<int32_t>(2), key, b.output<double>(0), weights.size(0),
         weights.size(1));
}

template <class K>
void expert_load(const Operands& b, bool accumulate, K&& kernel) {  // chosen, kept, scores -> load
  with_stat(b.in_type(2).dtype, [&]<class S>(S s) {
    kernel(s, load_shape(*b.instr), b.input<int32_t>(0), b.input<int32_t>(1), b.input<S>(2),
           b.output<double>(0), accumulate);
  });
}
template <class K>
void balance_sums(const Operands& b, K&& kernel) {  // scores, chosen -> sums
  const graph::Type& scores = b.in_type(0);
  with_stat(scores.dtype, [&]<class S>(S s) {
    kernel(s, sums_order(b.instr->attrs, scores.size(0)), scores.size(1), b.in_type(1).size(1), b.input<S>(0),
           b.input<int32_t>(1), b.output<S>(0));
  });
}
template <class K>
void balance_dx(const Operands& b, K&& kernel) {  // dsums, chosen -> dscores
  const graph::Type& dscores = b.out_type(0);
  with_stat(dscores.dtype, [&]<class S>(S s) {
    kernel(s, sums_order(b.instr->attrs, dscores.size(0)), dscores.size(1), b.input<S>(0), b.output<S>(0));
  });
}
template <class K>
void running_sum(const Operands& b, K&& kernel) {  // sums -> running
  const graph::Type& sums = b.in_type(0);
  with_stat(sums.dtype, [&]<class S>(S s) { kernel(s, b.input<S>(0), b.output<double>(0), sums.count()); });
}
template <class K>
void balance_loss(const Operands& b, bool accumulate, K&& kernel) {  // sums[, running] -> loss, slope
  with_stat(b.in_type(0).dtype, [&]<class S>(S s) {
    kernel(s, balance_loss_shape(*b.instr), b.input<S>(0), b.last_input<double>(1), b.output<double>(0),
           accumulate, b.output<S>(1));
  });
}
template <class K>
void balance_dsums(const Operands& b, K&& kernel) {  // slope, dloss -> dsums
  const graph::Type& slope = b.in_type(0);
  with_stat(slope.dtype, [&]<class S>(S s) {
    kernel(s, b.input<S>(0), b.input<double>(1), b.output<S>(0), slope.count());
  });
}
template <class K>
void z_loss(const Operands& b, bool accumulate, K&& kernel) {  // logits -> loss
  const graph::Type& x = b.in_type(0);
  with_stat(x.dtype, [&]<class S>(S s) {
    kernel(s, b.input<S>(0), x.size(0), x.size(1), b.instr->attrs.real("coefficient"), b.output<double>(0),
           accumulate);
  });
}
template <class K>
void z_loss_dx(const Operands& b, K&& kernel) {  // logits, dloss -> dlogits
  const graph::Type& x = b.in_type(0);
  with_stat(x.dtype, [&]<class S>(S s) {
    kernel(s, b.input<S>(0), x.size(0), x.size(1), b.instr->attrs.real("coefficient"), b.input<double>(1),
           b.output<S>(0));
  });
}
template <class K>
void update_bias(const Operands& b, K&& kernel) {  // load, ok, bias -> bias
  QUINTET_CHECK(b.in[2] == b.out[0], "update_bias works in place");
  const graph::Type& bias = b.out_type(0);
  with_stat(bias.dtype, [&]<class S>(S s) {
    kernel(s, b.input<double>(0), bias.size(0), b.instr->attrs.real("rate"), b.input<double>(1),
           b.output<S>(0));
  });
}

}  // namespace decode
}  // namespace quintet::exec
