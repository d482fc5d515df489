// Attention, whole and by hops of a ring.
#include "base/philox.h"
#include "exec/cpu/kernel.h"
#include "exec/shapes.h"
#include "kernels/cpu/attention/attention.h"

namespace quintet::exec::cpu {
namespace {

using program::Instr;
namespace k = kernels::cpu;

// The shape with its masks; documents and key_documents stand at `rest`, with dropout samples, positions,
// key_positions and the key follow.
k::AttentionShape bound_shape(const Bound& b, size_t first, size_t rest) {
  k::AttentionShape s{attention_geometry(*b.instr, first, rest)};
  if (b.instr->attrs.integer("packed") != 0) {
    s.documents = b.input<const int32_t>(rest);
    s.key_documents = b.input<const int32_t>(rest + 1);
  }
  if (s.dropout_p == 0) return s;
  const auto words = base::philox(static_cast<uint64_t>(*b.input<const int64_t>(rest + 5)),
                                  static_cast<uint64_t>(b.instr->attrs.integer("salt")));
  s.dropout_key = (uint64_t{words[0]} << 32) | words[1];
  bind_dropout(b, rest, s);
  return s;
}

void qkv_attention(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 0, 1);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    const Qkv<T> in = qkv_in(b.input<T>(0), s);
    k::attention<T>(s, in.q, in.k, in.v, b.output<T>(0), b.output<k::Stat<T>>(1), b.workspace, *b.pool);
  });
}

void attention(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 0, 3);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::attention<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<k::Stat<T>>(1),
                    b.workspace, *b.pool);
  });
}

void attention_hop(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 0, 3);
  const size_t at = operands_before(*b.instr, 3);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    using S = k::Stat<T>;
    const S* o = is_first_hop(*b.instr) ? nullptr : b.input<S>(at);
    const S* lse = is_first_hop(*b.instr) ? nullptr : b.input<S>(at + 1);
    k::attention_hop<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), o, lse, b.output<S>(0),
                        b.output<S>(1), b.workspace, *b.pool);
  });
}

int64_t attention_bytes(const Instr& i, int threads) {
  const k::AttentionShape s{attention_geometry(i, 0, i.op == &graph::kQkvAttention ? 1 : 3)};
  return with_type(i.in[0].type.dtype,
                   [&]<class T>(T) { return k::attention_workspace_bytes<T>(s, threads); });
}

void qkv_attention_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 1, 4);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    const Qkv<T> in = qkv_in(b.input<T>(1), s), out = qkv_in(b.output<T>(0), s);
    k::attention_backward<T>(s, b.input<T>(0), in.q, in.k, in.v, b.input<T>(2), b.input<k::Stat<T>>(3), out.q,
                             out.k, out.v, b.workspace, *b.pool);
  });
}

void attention_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 1, 6);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::attention_backward<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.input<T>(4),
                             b.input<k::Stat<T>>(5), b.output<T>(0), b.output<T>(1), b.output<T>(2),
                             b.workspace, *b.pool);
  });
}

void attention_hop_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 1, 6);
  const size_t at = operands_before(*b.instr, 6);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    using S = k::Stat<T>;
    k::attention_hop_backward<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.input<T>(4),
                                 b.input<S>(5), is_first_hop(*b.instr) ? nullptr : b.input<S>(at),
                                 b.output<S>(0), b.output<T>(1), b.output<T>(2), b.workspace, *b.pool);
  });
}

int64_t attention_dx_bytes(const Instr& i, int threads) {
  const k::AttentionShape s{attention_geometry(i, 1, i.op == &graph::kQkvAttentionDx ? 4 : 6)};
  return with_type(i.in[0].type.dtype,
                   [&]<class T>(T) { return k::attention_backward_workspace_bytes<T>(s, threads); });
}

}  // namespace

const std::vector<Kernel>& attention_kernels() {
  static const std::vector<Kernel> table = {{&graph::kAttention, attention, attention_bytes},
                                            {&graph::kAttentionDx, attention_dx, attention_dx_bytes},
                                            {&graph::kQkvAttention, qkv_attention, attention_bytes},
                                            {&graph::kQkvAttentionDx, qkv_attention_dx, attention_dx_bytes},
                                            {&graph::kAttentionHop, attention_hop, attention_bytes},
                                            {&graph::kAttentionHopDx, attention_hop_dx, attention_dx_bytes}};
  return table;
}

}  // namespace quintet::exec::cpu
