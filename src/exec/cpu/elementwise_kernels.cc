// Rotary positions, activations, sums, casts, dropout and concatenation of heads.
#include <cstring>

#include "exec/cpu/dropout_key.h"
#include "exec/cpu/gradients.h"
#include "exec/decode/elementwise.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/elementwise/dropout.h"
#include "kernels/cpu/elementwise/heads.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/elementwise/rope.h"
#include "kernels/cpu/elementwise/rows.h"
#include "kernels/cpu/reduce/reduce.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

void rope(const Bound& b, bool) {
  decode::rope(b, b.instr->attrs.reals("inv_freq").data(),
               [&]<class T>(T, auto... a) { k::rope<T>(a..., *b.pool, decode::rotated_elements(b)); });
  const decode::RowBytes rest = decode::unrotated(b);
  for (int64_t at = rest.first; rest.bytes > 0 && at < rest.rows * rest.stride; at += rest.stride)
    std::memcpy(b.out[0] + at, b.in[0] + at, static_cast<size_t>(rest.bytes));
}

}  // namespace

const std::vector<Kernel>& elementwise_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kRope, rope},
      {&graph::kRopeFirst, rope},
      {&graph::kSwiGlu,
       [](const Bound& b, bool) {
         decode::swiglu(b, [&]<class T>(T, auto... a) { k::swiglu<T>(a..., *b.pool, decode::gate_of(b)); });
       }},
      {&graph::kSwiGluDx,
       [](const Bound& b, bool) {
         decode::swiglu_gradients(
             b, [&]<class T>(T, auto... a) { k::swiglu_backward<T>(a..., *b.pool, decode::gate_of(b)); });
       }},
      {&graph::kSwiGluBackward,
       [](const Bound& b, bool) {
         decode::swiglu_gradients(
             b, [&]<class T>(T, auto... a) { k::swiglu_backward<T>(a..., *b.pool, decode::gate_of(b)); });
       }},
      {&graph::kGelu,
       [](const Bound& b, bool) {
         decode::map(b, [&]<class T>(T, auto... a) { k::gelu<T>(a..., *b.pool, decode::gelu_form(b)); });
       }},
      {&graph::kGeluDx,
       [](const Bound& b, bool) {
         decode::map_two(
             b, [&]<class T>(T, auto... a) { k::gelu_backward<T>(a..., *b.pool, decode::gelu_form(b)); });
       }},
      {&graph::kScale,
       [](const Bound& b, bool) {
         decode::map_by(b, "factor", [&]<class T>(T, auto... a) { k::scale<T>(a..., *b.pool); });
       }},
      {&graph::kCenter,
       [](const Bound& b, bool) {
         decode::center(b, [&]<class T>(T, auto... a) { k::center<T>(a..., *b.pool); });
       }},
      {&graph::kUnitNorm,
       [](const Bound& b, bool) {
         decode::unit_norm(b, [&]<class T>(T, auto... a) { k::unit_norm<T>(a..., *b.pool); });
       }},
      {&graph::kUnitNormDx,
       [](const Bound& b, bool) {
         decode::unit_norm_dx(b, [&]<class T>(T, auto... a) { k::unit_norm_backward<T>(a..., *b.pool); });
       }},
      {&graph::kClip,
       [](const Bound& b, bool) {
         decode::map_by(b, "limit", [&]<class T>(T, auto... a) { k::clip<T>(a..., *b.pool); });
       }},
      {&graph::kClipDx,
       [](const Bound& b, bool) {
         decode::map_two_by(b, "limit", [&]<class T>(T, auto... a) { k::clip_backward<T>(a..., *b.pool); });
       }},
      {&graph::kPositionScale,
       [](const Bound& b, bool) {
         decode::position_scale(b, [&]<class T>(T, auto... a) { k::position_scale<T>(a..., *b.pool); });
       }},
      {&graph::kSplitDocuments,
       [](const Bound& b, bool) {
         decode::split_documents(b, [&](auto... a) { k::split_documents(a...); });
       }},
      {&graph::kSoftCap,
       [](const Bound& b, bool) {
         decode::map_by(b, "cap", [&]<class T>(T, auto... a) { k::soft_cap<T>(a..., *b.pool); });
       }},
      {&graph::kSoftCapDx,
       [](const Bound& b, bool) {
         decode::map_two_by(b, "cap", [&]<class T>(T, auto... a) { k::soft_cap_backward<T>(a..., *b.pool); });
       }},
      {&graph::kAdd,
       [](const Bound& b, bool) {
         decode::map_two(b, [&]<class T>(T, auto... a) { k::add<T>(a..., *b.pool); });
       }},
      {&graph::kBiasAdd,
       [](const Bound& b, bool) {
         decode::bias_add(b, [&]<class T>(T, auto... a) { k::add_bias<T>(a..., *b.pool); });
       }},
      {&graph::kSumRows,
       [](const Bound& b, bool accumulate) {
         decode::sum_rows(b, accumulate, [&]<class T>(T, auto... a) { k::column_sum<T>(a..., *b.pool); });
       }},
      {&graph::kCast,
       [](const Bound& b, bool) {
         decode::cast(b, [&]<class X, class Y>(X* x, Y* y, int64_t n) { k::cast<X, Y>(x, y, n, *b.pool); });
       }},
      {&graph::kDropout,
       [](const Bound& b, bool) {
         decode::dropout(b, dropout_key(b, decode::kDropoutSeed),
                         [&]<class T>(T, auto... a) { k::dropout<T>(a..., *b.pool); });
       }},
      {&graph::kJoinHeads,
       [](const Bound& b, bool) {
         decode::join_heads(b, [&]<class T>(T, auto... a) { k::join_heads<T>(a..., *b.pool); });
       }},
      {&graph::kJoinHeadsDx,
       [](const Bound& b, bool) {
         decode::join_heads_dx(b, [&]<class T>(T, auto... a) { k::join_heads_backward<T>(a..., *b.pool); });
       }},
  };
  return table;
}

}  // namespace quintet::exec::cpu
