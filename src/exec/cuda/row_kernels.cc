// Norms, rotary positions, pointwise ops, embedding and loss: work that goes row by row.
#include "exec/cuda/kernel.h"
#include "exec/cuda/libraries.h"
#include "exec/cuda_scratch/shapes.h"
#include "exec/with_type.h"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/elementwise/dropout.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/embedding/embedding.h"
#include "kernels/cuda/loss/loss.h"
#include "kernels/cuda/norm/norm.h"
#include "kernels/cuda/optimizer/scalars.h"
#include "kernels/cuda/reduce/reduce.h"

namespace quintet::exec::cuda {
namespace {

using graph::Dim;
using graph::Type;
namespace k = kernels::cuda;

void rms_norm(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::rmsnorm<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), b.output<k::Stat<T>>(1), num_rows(x),
                  last_size(x), b.instr->attrs.real("eps"), b.stream);
  });
}
void rms_norm_dx(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::rmsnorm_dx<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<k::Stat<T>>(3),
                     b.in.size() > 4 ? b.input<T>(4) : nullptr, b.output<T>(0), num_rows(x), last_size(x),
                     b.stream);
  });
}
void rms_norm_dw(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    with_gradient<T>(b.out_type(0).dtype, [&]<class D>(D) {
      k::rmsnorm_dw<T>(b.input<T>(0), b.input<T>(1), b.input<k::Stat<T>>(2), b.output<D>(0), accumulate,
                       num_rows(x), last_size(x), b.workspace, b.stream);
    });
  });
}
void rms_norm_backward(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    with_gradient<T>(b.out_type(1).dtype, [&]<class D>(D) {
      k::rmsnorm_backward<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<k::Stat<T>>(3),
                             b.in.size() > 4 ? b.input<T>(4) : nullptr, b.output<T>(0),
                             b.out.size() > 2 ? b.output<T>(2) : nullptr, b.output<D>(1), accumulate,
                             num_rows(x), last_size(x), b.workspace, b.stream);
    });
  });
}
void add_rms_norm(const Bound& b, bool) {  // x, residual, w -> sum, y, rstd
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::add_rmsnorm<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<T>(1),
                      b.output<k::Stat<T>>(2), num_rows(x), last_size(x), b.instr->attrs.real("eps"),
                      b.stream);
  });
}
void layer_norm(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::layernorm<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<k::Stat<T>>(1),
                    b.output<k::Stat<T>>(2), num_rows(x), last_size(x), b.instr->attrs.real("eps"), b.stream);
  });
}
void add_layer_norm(const Bound& b, bool) {  // x, residual, w, b -> sum, y, mean, rstd
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::add_layernorm<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.output<T>(0),
                        b.output<T>(1), b.output<k::Stat<T>>(2), b.output<k::Stat<T>>(3), num_rows(x),
                        last_size(x), b.instr->attrs.real("eps"), b.stream);
  });
}
// dy, x, w, b, mean, rstd [, addend] -> dx, dw [, db] [, y]
void layer_norm_backward(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  const bool bias = b.instr->attrs.integer("bias") != 0, again = b.instr->attrs.integer("again") != 0;
  with_type(x.dtype, [&]<class T>(T) {
    with_gradient<T>(b.out_type(1).dtype, [&]<class D>(D) {
      k::layernorm_backward<T>(
          b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.input<k::Stat<T>>(4),
          b.input<k::Stat<T>>(5), b.in.size() > 6 ? b.input<T>(6) : nullptr, b.output<T>(0),
          again ? b.output<T>(bias ? 3 : 2) : nullptr, b.output<D>(1), bias ? b.output<D>(2) : nullptr,
          accumulate, num_rows(x), last_size(x), b.workspace, b.stream);
    });
  });
}
void layer_norm_dx(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::layernorm_dx<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<k::Stat<T>>(3),
                       b.input<k::Stat<T>>(4), b.in.size() > 5 ? b.input<T>(5) : nullptr, b.output<T>(0),
                       num_rows(x), last_size(x), b.stream);
  });
}
void layer_norm_dw(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    with_gradient<T>(b.out_type(0).dtype, [&]<class D>(D) {
      k::layernorm_dw<T>(b.input<T>(0), b.input<T>(1), b.input<k::Stat<T>>(2), b.input<k::Stat<T>>(3),
                         b.output<D>(0), b.out.size() > 1 ? b.output<D>(1) : nullptr, accumulate, num_rows(x),
                         last_size(x), b.workspace, b.stream);
    });
  });
}
// rope of all heads, and rope_first of some; the others are taken over where the result lies elsewhere.
void rope(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  const graph::Attrs& a = b.instr->attrs;
  const int64_t row = columns(x), heads = rotated_heads(*b.instr), rotated = heads * x.size(2);
  with_type(x.dtype, [&]<class T>(T) {
    k::rope<T>(b.input<T>(0), row, b.input<int32_t>(1), reinterpret_cast<const double*>(b.constants),
               a.real("scale"), b.output<T>(0), row, x.size(0), heads, x.size(2), a.integer("inverse") != 0,
               b.stream);
    if (b.in[0] == b.out[0]) return;
    k::copy_rows(b.in[0] + rotated * int64_t{sizeof(T)}, b.out[0] + rotated * int64_t{sizeof(T)}, x.size(0),
                 (row - rotated) * int64_t{sizeof(T)}, row * int64_t{sizeof(T)}, b.stream);
  });
}
void prepare_rope(Bound& b) {
  const std::vector<double>& frequencies = b.instr->attrs.reals("inv_freq");
  QUINTET_CHECK(static_cast<int64_t>(frequencies.size()) * 2 == b.in_type(0).size(2),
                "{} frequencies for heads of {}", frequencies.size(), b.in_type(0).size(2));
  b.constants = b.libraries->upload(std::as_bytes(std::span(frequencies)));
}

void swiglu(const Bound& b, bool) {
  const Type& y = b.out_type(0);
  with_type(y.dtype, [&]<class T>(T) {
    const auto [gate, up, stride] = gate_up_in<T>(b.in, 0, b.in.size() == 1, columns(y));
    k::swiglu<T>(gate, up, stride, b.output<T>(0), y.size(0), columns(y), b.stream);
  });
}
void swiglu_gradients(const Bound& b, bool) {  // swiglu_dx, and swiglu_backward with y behind them
  const Type& dy = b.in_type(0);
  const bool side_by_side = b.in.size() == 2;
  const size_t y = side_by_side ? 1 : 2;
  with_type(dy.dtype, [&]<class T>(T) {
    const auto in = gate_up_in<T>(b.in, 1, side_by_side, columns(dy)),
               out = gate_up_in<T>(b.out, 0, side_by_side, columns(dy));
    k::swiglu_backward<T>(b.input<T>(0), in.gate, in.up, in.stride, out.gate, out.up,
                          b.out.size() > y ? b.output<T>(y) : nullptr, dy.size(0), columns(dy), b.stream);
  });
}
void gelu(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) { k::gelu<T>(b.input<T>(0), b.output<T>(0), x.count(), b.stream); });
}
void gelu_dx(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::gelu_backward<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), x.count(), b.stream);
  });
}
void add(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::add<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), x.count(), b.stream);
  });
}
void bias_add(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::add_bias<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), x.size(0), columns(x), b.stream);
  });
}
void sum_rows(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    with_gradient<T>(b.out_type(0).dtype, [&]<class D>(D) {
      k::column_sum<T>(b.input<T>(0), b.output<D>(0), accumulate, x.size(0), columns(x), b.workspace,
                       b.stream);
    });
  });
}
void cast(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class X>(X) {
    with_type(b.out_type(0).dtype, [&]<class Y>(Y) {
      k::cast<X, Y>(b.input<X>(0), b.output<Y>(0), b.in_type(0).count(), b.stream);
    });
  });
}
// The key of this use is derived on the device, from the step's.
void dropout(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  auto* key = reinterpret_cast<uint64_t*>(b.workspace);
  k::derive_key(b.input<const int64_t>(3), static_cast<uint64_t>(b.instr->attrs.integer("salt")), key,
                b.stream);
  const program::Part* features = b.part(x.dims[1].name);
  with_type(x.dtype, [&]<class T>(T) {
    k::dropout<T>(b.input<T>(0), b.input<int32_t>(1), b.input<int32_t>(2), key, b.instr->attrs.real("p"),
                  features->begin, b.output<T>(0), x.size(0), x.size(1), b.stream);
  });
}
void embedding(const Bound& b, bool) {
  const Type& table = b.in_type(0);
  const int64_t begin = b.part(table.dims[0].name)->begin;
  with_type(table.dtype, [&]<class T>(T) {
    k::embedding<T>(b.input<T>(0), b.input<int32_t>(1), begin, table.size(0), b.output<T>(0),
                    b.in_type(1).size(0), table.size(1), b.stream);
  });
}
void embedding_dw(const Bound& b, bool accumulate) {  // ids, dy -> dtable
  const Type& table = b.out_type(0);
  const int64_t begin = b.part(table.dims[0].name)->begin;
  with_type(b.in_type(1).dtype, [&]<class T>(T) {
    with_gradient<T>(table.dtype, [&]<class D>(D) {
      k::embedding_dw<T, D>(b.input<T>(1), b.input<int32_t>(0), begin, table.size(0), b.output<D>(0),
                            accumulate, b.in_type(1).size(0), table.size(1), b.workspace, b.stream);
    });
  });
}
void row_max(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::row_max<T>(b.input<T>(0), x.size(0), x.size(1), b.part(Dim::Vocab)->valid, b.output<k::Stat<T>>(0),
                  b.stream);
  });
}
// The pair (sum of exponentials, label's logit) of each row lies as two arrays one after the other.
void row_sum_exp(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  const program::Part* vocab = b.part(Dim::Vocab);
  with_type(x.dtype, [&]<class T>(T) {
    k::row_sumexp<T>(b.input<T>(0), x.size(0), x.size(1), vocab->valid, vocab->begin, b.input<int32_t>(2),
                     b.input<k::Stat<T>>(1), b.output<k::Stat<T>>(0), b.output<k::Stat<T>>(0) + x.size(0),
                     b.stream);
  });
}
void loss_grad(const Bound& b,
               bool accumulate) {  // logits, max, sums, labels, seed -> loss, dlogits over logits
  const Type& x = b.in_type(0);
  const program::Part* vocab = b.part(Dim::Vocab);
  QUINTET_CHECK(b.in[0] == b.out[1], "loss_grad works in place");
  with_type(x.dtype, [&]<class T>(T) {
    k::cross_entropy_backward<T>(b.output<T>(1), x.size(0), x.size(1), vocab->valid, vocab->begin,
                                 b.input<int32_t>(3), b.input<k::Stat<T>>(1), b.input<k::Stat<T>>(2),
                                 b.input<k::Stat<T>>(2) + x.size(0), b.input<double>(4),
                                 /*write_dlogits=*/true, b.output<double>(0), accumulate, nullptr,
                                 b.workspace, b.stream);
  });
}
void cross_entropy(const Bound& b, bool accumulate) {  // logits, labels, seed -> loss, dlogits over logits
  const Type& x = b.in_type(0);
  QUINTET_CHECK(b.in[0] == b.out[1], "cross_entropy works in place");
  with_type(x.dtype, [&]<class T>(T) {
    k::cross_entropy<T>(b.output<T>(1), x.size(0), x.size(1), x.size(1), b.input<int32_t>(1),
                        b.input<double>(2), /*write_dlogits=*/true, b.output<double>(0), accumulate, nullptr,
                        b.workspace, b.stream);
  });
}
}  // namespace

const std::vector<Kernel>& row_kernels() {
  static const std::vector<Kernel> table = {{&graph::kRmsNorm, rms_norm},
                                            {&graph::kAddRmsNorm, add_rms_norm},
                                            {&graph::kRmsNormDx, rms_norm_dx},
                                            {&graph::kRmsNormDw, rms_norm_dw},
                                            {&graph::kRmsNormBackward, rms_norm_backward},
                                            {&graph::kLayerNorm, layer_norm},
                                            {&graph::kAddLayerNorm, add_layer_norm},
                                            {&graph::kLayerNormDx, layer_norm_dx},
                                            {&graph::kLayerNormDw, layer_norm_dw},
                                            {&graph::kLayerNormBackward, layer_norm_backward},
                                            {&graph::kRope, rope, prepare_rope},
                                            {&graph::kRopeFirst, rope, prepare_rope},
                                            {&graph::kSwiGlu, swiglu},
                                            {&graph::kSwiGluDx, swiglu_gradients},
                                            {&graph::kSwiGluBackward, swiglu_gradients},
                                            {&graph::kGelu, gelu},
                                            {&graph::kGeluDx, gelu_dx},
                                            {&graph::kAdd, add},
                                            {&graph::kBiasAdd, bias_add},
                                            {&graph::kSumRows, sum_rows},
                                            {&graph::kCast, cast},
                                            {&graph::kDropout, dropout},
                                            {&graph::kEmbedding, embedding},
                                            {&graph::kEmbeddingDw, embedding_dw},
                                            {&graph::kRowMax, row_max},
                                            {&graph::kRowSumExp, row_sum_exp},
                                            {&graph::kLossGrad, loss_grad},
                                            {&graph::kCrossEntropy, cross_entropy}};
  return table;
}

}  // namespace quintet::exec::cuda
