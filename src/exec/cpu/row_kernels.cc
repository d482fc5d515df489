// Norms, rotary positions, pointwise ops, embedding and loss: work that goes row by row.
#include "base/philox.h"
#include "exec/cpu/gradients.h"
#include "exec/shapes.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/elementwise/dropout.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/elementwise/rope.h"
#include "kernels/cpu/embedding/embedding.h"
#include "kernels/cpu/loss/loss.h"
#include "kernels/cpu/norm/norm.h"
#include "kernels/cpu/reduce/reduce.h"

namespace quintet::exec::cpu {
namespace {

using graph::Dim;
using graph::Type;
using program::Instr;
namespace k = kernels::cpu;

void rms_norm(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::rmsnorm<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), b.output<k::Stat<T>>(1), num_rows(x),
                  last_size(x), b.instr->attrs.real("eps"), *b.pool);
  });
}
void rms_norm_dx(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::rmsnorm_dx<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<k::Stat<T>>(3),
                     b.in.size() > 4 ? b.input<T>(4) : nullptr, b.output<T>(0), static_cast<T*>(nullptr),
                     num_rows(x), last_size(x), *b.pool);
  });
}
void rms_norm_dw(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    write_gradients<k::Grad<T>>(b, {0}, accumulate, [&](auto& dw, bool add, std::byte* workspace) {
      k::rmsnorm_dw<T>(b.input<T>(0), b.input<T>(1), b.input<k::Stat<T>>(2), dw[0], add, num_rows(x),
                       last_size(x), workspace, *b.pool);
    });
  });
}
void rms_norm_backward(const Bound& b, bool accumulate) {  // the weight's first: dx may lie over dy
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    const auto* const rstd = b.input<k::Stat<T>>(3);
    write_gradients<k::Grad<T>>(b, {1}, accumulate, [&](auto& dw, bool add, std::byte* workspace) {
      k::rmsnorm_dw<T>(b.input<T>(0), b.input<T>(1), rstd, dw[0], add, num_rows(x), last_size(x), workspace,
                       *b.pool);
    });
    k::rmsnorm_dx<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), rstd,
                     b.in.size() > 4 ? b.input<T>(4) : nullptr, b.output<T>(0),
                     b.out.size() > 2 ? b.output<T>(2) : nullptr, num_rows(x), last_size(x), *b.pool);
  });
}
void add_rms_norm(const Bound& b, bool) {  // x, residual, w -> sum, y, rstd
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::add<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), x.count(), *b.pool);
    k::rmsnorm<T>(b.output<T>(0), b.input<T>(2), b.output<T>(1), b.output<k::Stat<T>>(2), num_rows(x),
                  last_size(x), b.instr->attrs.real("eps"), *b.pool);
  });
}
int64_t rms_norm_sums_bytes(const Instr& i) {
  const Type& x = i.in[0].type;
  return with_type(x.dtype,
                   [&]<class T>(T) { return k::rmsnorm_dw_workspace_bytes<T>(num_rows(x), last_size(x)); });
}
int64_t rms_norm_dw_bytes(const Instr& i, int) { return sums_bytes(i, {0}) + rms_norm_sums_bytes(i); }
int64_t rms_norm_backward_bytes(const Instr& i, int) { return sums_bytes(i, {1}) + rms_norm_sums_bytes(i); }

void layer_norm(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::layernorm<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<k::Stat<T>>(1),
                    b.output<k::Stat<T>>(2), num_rows(x), last_size(x), b.instr->attrs.real("eps"), *b.pool);
  });
}
void layer_norm_dx(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::layernorm_dx<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), nullptr, b.input<k::Stat<T>>(3),
                       b.input<k::Stat<T>>(4), b.in.size() > 5 ? b.input<T>(5) : nullptr, b.output<T>(0),
                       static_cast<T*>(nullptr), num_rows(x), last_size(x), *b.pool);
  });
}
void add_layer_norm(const Bound& b, bool) {  // x, residual, w, b -> sum, y, mean, rstd
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::add<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), x.count(), *b.pool);
    k::layernorm<T>(b.output<T>(0), b.input<T>(2), b.input<T>(3), b.output<T>(1), b.output<k::Stat<T>>(2),
                    b.output<k::Stat<T>>(3), num_rows(x), last_size(x), b.instr->attrs.real("eps"), *b.pool);
  });
}
void layer_norm_dw(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    write_gradients<k::Grad<T>>(b, {0, 1}, accumulate, [&](auto& to, bool add, std::byte* workspace) {
      k::layernorm_dw<T>(b.input<T>(0), b.input<T>(1), b.input<k::Stat<T>>(2), b.input<k::Stat<T>>(3), to[0],
                         to[1], add, num_rows(x), last_size(x), workspace, *b.pool);
    });
  });
}
// dy, x, w, b, mean, rstd [, addend] -> dx, dw [, db] [, y]; the weight's first: dx may lie over dy
void layer_norm_backward(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  const bool bias = b.instr->attrs.integer("bias") != 0, again = b.instr->attrs.integer("again") != 0;
  with_type(x.dtype, [&]<class T>(T) {
    const auto *const mean = b.input<k::Stat<T>>(4), *const rstd = b.input<k::Stat<T>>(5);
    const auto sums = [&](auto& to, bool add, std::byte* workspace) {
      constexpr size_t kSums = std::extent_v<std::remove_reference_t<decltype(to)>>;
      k::Grad<T>* const db = kSums > 1 ? to[kSums - 1] : nullptr;
      k::layernorm_dw<T>(b.input<T>(0), b.input<T>(1), mean, rstd, to[0], db, add, num_rows(x), last_size(x),
                         workspace, *b.pool);
    };
    if (bias)
      write_gradients<k::Grad<T>>(b, {1, 2}, accumulate, sums);
    else
      write_gradients<k::Grad<T>>(b, {1}, accumulate, sums);
    k::layernorm_dx<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), mean, rstd,
                       b.in.size() > 6 ? b.input<T>(6) : nullptr, b.output<T>(0),
                       again ? b.output<T>(bias ? 3 : 2) : nullptr, num_rows(x), last_size(x), *b.pool);
  });
}
int64_t layer_norm_sums_bytes(const Instr& i) {
  const Type& x = i.in[0].type;
  return with_type(x.dtype,
                   [&]<class T>(T) { return k::layernorm_dw_workspace_bytes<T>(num_rows(x), last_size(x)); });
}
int64_t layer_norm_dw_bytes(const Instr& i, int) { return sums_bytes(i, {0, 1}) + layer_norm_sums_bytes(i); }
int64_t layer_norm_backward_bytes(const Instr& i, int) {
  const bool bias = i.attrs.integer("bias") != 0;
  return (bias ? sums_bytes(i, {1, 2}) : sums_bytes(i, {1})) + layer_norm_sums_bytes(i);
}

// rope of all heads, and rope_first of some; the others are taken over where the result lies elsewhere.
void rope(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  const graph::Attrs& a = b.instr->attrs;
  const int64_t row = columns(x), heads = rotated_heads(*b.instr), rotated = heads * x.size(2);
  with_type(x.dtype, [&]<class T>(T) {
    k::rope<T>(b.input<T>(0), row, b.input<int32_t>(1), a.reals("inv_freq").data(), a.real("scale"),
               b.output<T>(0), row, x.size(0), heads, x.size(2), a.integer("inverse") != 0, *b.pool);
    if (b.in[0] == b.out[0]) return;
    for (int64_t r = 0; r < x.size(0); ++r)
      std::copy(b.input<T>(0) + r * row + rotated, b.input<T>(0) + (r + 1) * row,
                b.output<T>(0) + r * row + rotated);
  });
}

void swiglu(const Bound& b, bool) {
  const Type& y = b.out_type(0);
  with_type(y.dtype, [&]<class T>(T) {
    const auto [gate, up, stride] = gate_up_in<T>(b.in, 0, b.in.size() == 1, columns(y));
    k::swiglu<T>(gate, up, stride, b.output<T>(0), y.size(0), columns(y), *b.pool);
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
                          b.out.size() > y ? b.output<T>(y) : nullptr, dy.size(0), columns(dy), *b.pool);
  });
}
void gelu(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) { k::gelu<T>(b.input<T>(0), b.output<T>(0), x.count(), *b.pool); });
}
void gelu_dx(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::gelu_backward<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), x.count(), *b.pool);
  });
}
void add(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype,
            [&]<class T>(T) { k::add<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), x.count(), *b.pool); });
}
void bias_add(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::add_bias<T>(b.input<T>(0), b.input<T>(1), b.output<T>(0), x.size(0), columns(x), *b.pool);
  });
}
void sum_rows(const Bound& b, bool accumulate) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    write_gradients<k::Grad<T>>(b, {0}, accumulate, [&](auto& db, bool add, std::byte* workspace) {
      k::column_sum<T>(b.input<T>(0), db[0], add, x.size(0), columns(x), workspace, *b.pool);
    });
  });
}
int64_t sum_rows_bytes(const Instr& i, int) {
  const Type& x = i.in[0].type;
  return sums_bytes(i, {0}) + with_type(x.dtype, [&]<class T>(T) {
           return k::column_sum_workspace_bytes<T>(x.size(0), columns(x));
         });
}
void cast(const Bound& b, bool) {
  with_type(b.in_type(0).dtype, [&]<class X>(X) {
    with_type(b.out_type(0).dtype, [&]<class Y>(Y) {
      k::cast<X, Y>(b.input<X>(0), b.output<Y>(0), b.in_type(0).count(), *b.pool);
    });
  });
}
void dropout(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  const auto words = base::philox(static_cast<uint64_t>(*b.input<const int64_t>(3)),
                                  static_cast<uint64_t>(b.instr->attrs.integer("salt")));
  const uint64_t key = (uint64_t{words[0]} << 32) | words[1];
  const program::Part* features = b.part(x.dims[1].name);
  with_type(x.dtype, [&]<class T>(T) {
    k::dropout<T>(b.input<T>(0), b.input<int32_t>(1), b.input<int32_t>(2), key, b.instr->attrs.real("p"),
                  features->begin, b.output<T>(0), x.size(0), x.size(1), *b.pool);
  });
}

void embedding(const Bound& b, bool) {
  const Type& table = b.in_type(0);
  const int64_t begin = b.part(table.dims[0].name)->begin;
  with_type(table.dtype, [&]<class T>(T) {
    k::embedding<T>(b.input<T>(0), b.input<int32_t>(1), begin, table.size(0), b.output<T>(0),
                    b.in_type(1).size(0), table.size(1), *b.pool);
  });
}
void embedding_dw(const Bound& b, bool accumulate) {  // ids, dy -> dtable
  const Type& table = b.out_type(0);
  const int64_t begin = b.part(table.dims[0].name)->begin;
  with_type(b.in_type(1).dtype, [&]<class T>(T) {
    write_gradients<k::Grad<T>>(b, {0}, accumulate, [&](auto& to, bool add, std::byte*) {
      k::embedding_dw<T>(b.input<T>(1), b.input<int32_t>(0), begin, table.size(0), to[0], add,
                         b.in_type(1).size(0), table.size(1), *b.pool);
    });
  });
}
int64_t embedding_dw_bytes(const Instr& i, int) { return sums_bytes(i, {0}); }

void row_max(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  with_type(x.dtype, [&]<class T>(T) {
    k::row_max<T>(b.input<T>(0), x.size(0), x.size(1), b.part(Dim::Vocab)->valid, b.output<k::Stat<T>>(0),
                  *b.pool);
  });
}
// The pair (sum of exponentials, label's logit) of each row lies as two arrays one after the other.
void row_sum_exp(const Bound& b, bool) {
  const Type& x = b.in_type(0);
  const program::Part* vocab = b.part(Dim::Vocab);
  with_type(x.dtype, [&]<class T>(T) {
    k::row_sumexp<T>(b.input<T>(0), x.size(0), x.size(1), vocab->valid, vocab->begin, b.input<int32_t>(2),
                     b.input<k::Stat<T>>(1), b.output<k::Stat<T>>(0), b.output<k::Stat<T>>(0) + x.size(0),
                     *b.pool);
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
                                 b.workspace, *b.pool);
  });
}
void cross_entropy(const Bound& b, bool accumulate) {  // logits, labels, seed -> loss, dlogits over logits
  const Type& x = b.in_type(0);
  QUINTET_CHECK(b.in[0] == b.out[1], "cross_entropy works in place");
  with_type(x.dtype, [&]<class T>(T) {
    k::cross_entropy<T>(b.output<T>(1), x.size(0), x.size(1), x.size(1), b.input<int32_t>(1),
                        b.input<double>(2), /*write_dlogits=*/true, b.output<double>(0), accumulate, nullptr,
                        b.workspace, *b.pool);
  });
}
int64_t loss_grad_bytes(const Instr& i, int) {
  return k::cross_entropy_workspace_bytes(i.in[0].type.size(0));
}

}  // namespace

const std::vector<Kernel>& row_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kRmsNorm, rms_norm, nullptr},
      {&graph::kAddRmsNorm, add_rms_norm, nullptr},
      {&graph::kRmsNormDx, rms_norm_dx, nullptr},
      {&graph::kRmsNormBackward, rms_norm_backward, rms_norm_backward_bytes},
      {&graph::kRmsNormDw, rms_norm_dw, rms_norm_dw_bytes},
      {&graph::kLayerNorm, layer_norm, nullptr},
      {&graph::kAddLayerNorm, add_layer_norm, nullptr},
      {&graph::kLayerNormDx, layer_norm_dx, nullptr},
      {&graph::kLayerNormDw, layer_norm_dw, layer_norm_dw_bytes},
      {&graph::kLayerNormBackward, layer_norm_backward, layer_norm_backward_bytes},
      {&graph::kRope, rope, nullptr},
      {&graph::kRopeFirst, rope, nullptr},
      {&graph::kSwiGlu, swiglu, nullptr},
      {&graph::kSwiGluDx, swiglu_gradients, nullptr},
      {&graph::kSwiGluBackward, swiglu_gradients, nullptr},
      {&graph::kGelu, gelu, nullptr},
      {&graph::kGeluDx, gelu_dx, nullptr},
      {&graph::kAdd, add, nullptr},
      {&graph::kBiasAdd, bias_add, nullptr},
      {&graph::kSumRows, sum_rows, sum_rows_bytes},
      {&graph::kCast, cast, nullptr},
      {&graph::kDropout, dropout, nullptr},
      {&graph::kEmbedding, embedding, nullptr},
      {&graph::kEmbeddingDw, embedding_dw, embedding_dw_bytes},
      {&graph::kRowMax, row_max, nullptr},
      {&graph::kRowSumExp, row_sum_exp, nullptr},
      {&graph::kLossGrad, loss_grad, loss_grad_bytes},
      {&graph::kCrossEntropy, cross_entropy, loss_grad_bytes}};
  return table;
}

}  // namespace quintet::exec::cpu
