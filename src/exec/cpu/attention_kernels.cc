// Attention, whole and by hops of a ring.
#include "exec/cpu/dropout_key.h"
#include "exec/cpu/gradients.h"
#include "exec/decode/attention.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/sink.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

k::AttentionShape bound_shape(const Bound& b) {
  k::AttentionShape s{attention_rows(b)};
  if (s.dropout_p > 0) s.dropout_key = dropout_key(b, dropout_seed(*b.instr));
  return s;
}

void attention(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b);
  decode::attention(b, s, [&]<class T>(T, auto... a) { k::attention<T>(s, a..., b.workspace, *b.pool); });
}
void attention_hop(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b);
  decode::attention_hop(b,
                        [&]<class T>(T, auto... a) { k::attention_hop<T>(s, a..., b.workspace, *b.pool); });
}
void attention_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b);
  decode::attention_dx(
      b, s, [&]<class T>(T, auto... a) { k::attention_backward<T>(s, a..., b.workspace, *b.pool); });
}
void attention_hop_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b);
  decode::attention_hop_dx(
      b, [&]<class T>(T, auto... a) { k::attention_hop_backward<T>(s, a..., b.workspace, *b.pool); });
}

void attention_sink(const Bound& b, bool) {
  decode::attention_sink(b, [&]<class T>(T, auto... a) { k::attention_sink<T>(a..., *b.pool); });
}
void attention_sink_dw(const Bound& b, bool accumulate) {
  decode::attention_sink_dw(b, accumulate,
                            [&]<class T>(T, auto... a) { k::attention_sink_dw<T>(a..., *b.pool); });
}

}  // namespace

const std::vector<Kernel>& attention_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kAttention, attention},          {&graph::kAttentionDx, attention_dx},
      {&graph::kQkvAttention, attention},       {&graph::kQkvAttentionDx, attention_dx},
      {&graph::kAttentionHop, attention_hop},   {&graph::kAttentionHopDx, attention_hop_dx},
      {&graph::kAttentionSink, attention_sink}, {&graph::kAttentionSinkDw, attention_sink_dw}};
  return table;
}

}  // namespace quintet::exec::cpu
