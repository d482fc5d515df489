// Rotary positions, activations, sums, casts, dropout and concatenation of heads.
#include "exec/cuda/dropout_key.h"
#include "exec/cuda/gradients.h"
#include "exec/cuda/libraries.h"
#include "exec/decode/elementwise.h"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/elementwise/dropout.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/elementwise/rows.h"
#include "kernels/cuda/experts/expert_act.h"
#include "kernels/cuda/optimizer/scalars.h"
#include "kernels/cuda/reduce/reduce.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

void rope(const Bound& b, bool) {
  decode::rope(b, reinterpret_cast<const double*>(b.constants),
               [&]<class T>(T, auto... a) { k::rope<T>(a..., b.stream, decode::rotated_elements(b)); });
  if (const decode::RowBytes rest = decode::unrotated(b); rest.bytes > 0)
    k::copy_rows(b.in[0] + rest.first, b.out[0] + rest.first, rest.rows, rest.bytes, rest.stride, b.stream);
}
void prepare_rope(Bound& b) {
  const std::vector<double>& frequencies = b.instr->attrs.reals("inv_freq");
  b.constants = b.libraries->upload(std::as_bytes(std::span(frequencies)));
}

}  // namespace

const std::vector<Kernel>& elementwise_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kRope, rope, prepare_rope},
      {&graph::kRopeFirst, rope, prepare_rope},
      {&graph::kSwiGlu,
       [](const Bound& b, bool) {
         decode::swiglu(b, [&]<class T>(T, auto... a) { k::swiglu<T>(a..., b.stream, decode::gate_of(b)); });
       }},
      {&graph::kSwiGluDx,
       [](const Bound& b, bool) {
         decode::swiglu_gradients(
             b, [&]<class T>(T, auto... a) { k::swiglu_backward<T>(a..., b.stream, decode::gate_of(b)); });
       }},
      {&graph::kSwiGluBackward,
       [](const Bound& b, bool) {
         decode::swiglu_gradients(
             b, [&]<class T>(T, auto... a) { k::swiglu_backward<T>(a..., b.stream, decode::gate_of(b)); });
       }},
      {&graph::kGelu,
       [](const Bound& b, bool) {
         decode::map(b, [&]<class T>(T, auto... a) { k::gelu<T>(a..., b.stream, decode::gelu_form(b)); });
       }},
      {&graph::kGeluDx,
       [](const Bound& b, bool) {
         decode::map_two(
             b, [&]<class T>(T, auto... a) { k::gelu_backward<T>(a..., b.stream, decode::gelu_form(b)); });
       }},
      {&graph::kScale,
       [](const Bound& b, bool) {
         decode::map_by(b, "factor", [&]<class T>(T, auto... a) { k::scale<T>(a..., b.stream); });
       }},
      {&graph::kCenter,
       [](const Bound& b, bool) {
         decode::center(b, [&]<class T>(T, auto... a) { k::center<T>(a..., b.stream); });
       }},
      {&graph::kUnitNorm,
       [](const Bound& b, bool) {
         decode::unit_norm(b, [&]<class T>(T, auto... a) { k::unit_norm<T>(a..., b.stream); });
       }},
      {&graph::kUnitNormDx,
       [](const Bound& b, bool) {
         decode::unit_norm_dx(b, [&]<class T>(T, auto... a) { k::unit_norm_backward<T>(a..., b.stream); });
       }},
      {&graph::kClip,
       [](const Bound& b, bool) {
         decode::map_by(b, "limit", [&]<class T>(T, auto... a) { k::clip<T>(a..., b.stream); });
       }},
      {&graph::kClipDx,
       [](const Bound& b, bool) {
         decode::map_two_by(b, "limit", [&]<class T>(T, auto... a) { k::clip_backward<T>(a..., b.stream); });
       }},
      {&graph::kPositionScale,
       [](const Bound& b, bool) {
         decode::position_scale(b, [&]<class T>(T, auto... a) { k::position_scale<T>(a..., b.stream); });
       }},
      {&graph::kSplitDocuments,
       [](const Bound& b, bool) {
         decode::split_documents(b, [&](auto... a) { k::split_documents(a..., b.stream); });
       }},
      {&graph::kSoftCap,
       [](const Bound& b, bool) {
         decode::map_by(b, "cap", [&]<class T>(T, auto... a) { k::soft_cap<T>(a..., b.stream); });
       }},
      {&graph::kSoftCapDx,
       [](const Bound& b, bool) {
         decode::map_two_by(b, "cap",
                            [&]<class T>(T, auto... a) { k::soft_cap_backward<T>(a..., b.stream); });
       }},
      {&graph::kAdd,
       [](const Bound& b, bool) {
         decode::map_two(b, [&]<class T>(T, auto... a) { k::add<T>(a..., b.stream); });
       }},
      {&graph::kBiasAdd,
       [](const Bound& b, bool) {
         decode::bias_add(b, [&]<class T>(T, auto... a) { k::add_bias<T>(a..., b.stream); });
       }},
      {&graph::kSumRows,
       [](const Bound& b, bool accumulate) {
         decode::sum_rows(b, accumulate, [&]<class T>(T, auto... a) { k::column_sum<T>(a..., b.stream); });
       }},
      {&graph::kCast,
       [](const Bound& b, bool) {
         decode::cast(b, [&]<class X, class Y>(X* x, Y* y, int64_t n) { k::cast<X, Y>(x, y, n, b.stream); });
       }},
      {&graph::kDropout,
       [](const Bound& b, bool) {
         decode::dropout(b, derive_dropout_key(b, decode::kDropoutSeed),
                         [&]<class T>(T, auto... a) { k::dropout<T>(a..., b.stream); });
       }},
      {&graph::kJoinHeads,
       [](const Bound& b, bool) {
         decode::join_heads(b, [&]<class T>(T, auto... a) { k::join_heads<T>(a..., b.stream); });
       }},
      {&graph::kJoinHeadsDx,
       [](const Bound& b, bool) {
         decode::join_heads_dx(b, [&]<class T>(T, auto... a) { k::join_heads_backward<T>(a..., b.stream); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cuda
