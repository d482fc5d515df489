// Arguments of embedding and loss, for the kernels of every backend (see exec/decode/sizes.h).
#pragma once

#include "exec/decode/sizes.h"

namespace quintet::exec::decode {

template <class K>
void embedding(const Operands& b, K&& kernel) {  // table, ids -> y
  const graph::Type& table = b.in_type(0);
  with_type(table.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), b.input<int32_t>(1), b.part(table.dims[0].name)->begin, table.size(0),
           b.output<T>(0), b.in_type(1).size(0), table.size(1));
  });
}
template <class Bound, class K>
void embedding_dw(const Bound& bound, bool accumulate, K&& kernel) {  // ids, dy -> dtable
  const Operands& b = bound;
  const graph::Type &dy = b.in_type(1), &table = b.out_type(0);
  with_type(dy.dtype, [&]<class T>(T t) {
    with_gradients<T>(bound, {0}, accumulate, [&](auto& dtable, bool add, std::byte* workspace) {
      kernel(t, b.input<T>(1), b.input<int32_t>(0), b.part(table.dims[0].name)->begin, table.size(0),
             dtable[0], add, dy.size(0), table.size(1), workspace);
    });
  });
}

template <class K>
void row_max(const Operands& b, K&& kernel) {  // logits -> max
  const graph::Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), x.size(0), x.size(1), b.part(graph::Dim::Vocab)->valid, b.output<Stat<T>>(0));
  });
}
// The pair (sum of exponentials, label's logit) of each row: two arrays, one after the other.
template <class K>
void row_sum_exp(const Operands& b, K&& kernel) {  // logits, max, labels -> pairs
  const graph::Type& x = b.in_type(0);
  const program::Part* const vocab = b.part(graph::Dim::Vocab);
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.input<T>(0), x.size(0), x.size(1), vocab->valid, vocab->begin, b.input<int32_t>(2),
           b.input<Stat<T>>(1), b.output<Stat<T>>(0), b.output<Stat<T>>(0) + x.size(0));
  });
}
template <class K>
void loss_grad(const Operands& b, bool accumulate,
               K&& kernel) {  // logits, max, pairs, labels, seed -> loss, dlogits over logits
  const graph::Type& x = b.in_type(0);
  const program::Part* const vocab = b.part(graph::Dim::Vocab);
  QUINTET_CHECK(b.in[0] == b.out[1], "loss_grad works in place");
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.output<T>(1), x.size(0), x.size(1), vocab->valid, vocab->begin, b.input<int32_t>(3),
           b.input<Stat<T>>(1), b.input<Stat<T>>(2), b.input<Stat<T>>(2) + x.size(0), b.input<double>(4),
           /*write_dlogits=*/true, b.output<double>(0), accumulate, /*row_loss=*/nullptr);
  });
}
template <class K>
void cross_entropy(const Operands& b, bool accumulate,
                   K&& kernel) {  // logits, labels, seed -> loss, dlogits over logits
  const graph::Type& x = b.in_type(0);
  QUINTET_CHECK(b.in[0] == b.out[1], "cross_entropy works in place");
  with_type(x.dtype, [&]<class T>(T t) {
    kernel(t, b.output<T>(1), x.size(0), x.size(1), x.size(1), b.input<int32_t>(1), b.input<double>(2),
           /*write_dlogits=*/true, b.output<double>(0), accumulate, /*row_loss=*/nullptr);
  });
}

}  // namespace quintet::exec::decode
