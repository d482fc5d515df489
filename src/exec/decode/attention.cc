#include "exec/decode/attention.h"

#include <algorithm>

#include "base/error.h"
#include "exec/decode/cuda_attention.h"
#include "exec/decode/scratch.h"
#include "kernels/cpu/attention/attention.h"

namespace quintet::exec {

using graph::Dim;
using graph::Type;
using program::Instr;

const AttentionPlaces* attention_places(const Instr& i) {
  static const AttentionPlaces places[] = {
      {.op = &graph::kAttention, .backward = false, .q = 0, .o = 0, .documents = 3},
      {.op = &graph::kAttentionDx, .backward = true, .q = 1, .o = 4, .documents = 6},
      {.op = &graph::kQkvAttention, .backward = false, .q = 0, .o = 0, .documents = 1},
      {.op = &graph::kQkvAttentionDx, .backward = true, .q = 1, .o = 2, .documents = 4},
      {.op = &graph::kAttentionHop, .backward = false, .q = 0, .o = 0, .documents = 3},
      {.op = &graph::kAttentionHopDx, .backward = true, .q = 1, .o = 4, .documents = 6}};
  const auto* const place = std::ranges::find(places, i.op, &AttentionPlaces::op);
  return i.kind == program::InstrKind::Compute && place != std::end(places) ? place : nullptr;
}

kernels::AttentionGeometry attention_geometry(const Instr& i) {
  const AttentionPlaces& at = *attention_places(i);
  const size_t first = at.q, rest = at.documents;
  const bool in_one = has_packed_qkv(i);
  Type q = i.in[first].type, key = i.in[first + (in_one ? 0 : 1)].type,
       v = i.in[first + (in_one ? 0 : 2)].type;
  if (in_one) {
    q.dims[1].size = i.attrs.integer("heads");
    key.dims[1].size = v.dims[1].size = i.attrs.integer("kv_heads");
  }
  kernels::AttentionGeometry s;
  const int64_t cp = i.attrs.integer("cp"), ulysses = i.attrs.integer("ulysses"), ring = cp / ulysses;
  const program::Part* context = part_of(i, Dim::Context);
  const bool cut = context != nullptr && context->size < context->global;
  const int64_t rank = cut ? context->begin / context->size : 0;
  base::RowOrder whole{.seq_len = i.attrs.integer("seq_len"), .sequences = 0, .ranks = cp, .count = cp};
  whole.sequences = i.in[rest + 1].type.size(0) / whole.seq_len;
  const auto held_by = [&](int64_t ring_rank) {
    base::RowOrder rows = whole;
    rows.first = ring_rank * ulysses;
    rows.count = ulysses;
    return rows;
  };
  if (i.attrs.find("hop") != nullptr) {
    s.q_rows = held_by(rank);
    s.k_rows = held_by((rank + ring - i.attrs.integer("hop")) % ring);
  } else {
    s.q_rows = cut ? held_by(rank) : whole;
    s.k_rows = whole;
  }
  QUINTET_CHECK(s.q_rows.rows() == q.size(0) && s.k_rows.rows() == key.size(0),
                "[{}] of ring rank {}: expected {} and {} rows of q and k, got {} and {}", i.op->name, rank,
                s.q_rows.rows(), s.k_rows.rows(), q.size(0), key.size(0));
  s.heads = q.size(1);
  s.kv_heads = key.size(1);
  s.head_dim = q.size(2);
  s.value_dim = v.size(2);
  s.q_stride = s.dq_stride = s.heads * s.head_dim;
  s.k_stride = s.dk_stride = s.kv_heads * s.head_dim;
  s.v_stride = s.dv_stride = s.kv_heads * s.value_dim;
  if (in_one)
    for (int64_t* stride : {&s.q_stride, &s.k_stride, &s.v_stride, &s.dq_stride, &s.dk_stride, &s.dv_stride})
      *stride = columns(i.in[first].type);
  s.o_stride = s.heads * s.value_dim;
  s.window = i.attrs.integer("window");
  s.scale = i.attrs.real("scale");
  s.dropout_p = i.attrs.real("dropout");
  if (i.attrs.find("soft_cap") != nullptr) s.soft_cap = i.attrs.real("soft_cap");
  s.both_sides = i.attrs.find("both_sides") != nullptr && i.attrs.integer("both_sides") != 0;
  return s;
}

kernels::AttentionGeometry attention_rows(const Operands& b) {
  kernels::AttentionGeometry s = attention_geometry(*b.instr);
  const size_t at = attention_places(*b.instr)->documents;
  if (has_documents(*b.instr)) {
    s.documents = b.input<const int32_t>(at);
    s.key_documents = b.input<const int32_t>(at + 1);
  }
  if (s.dropout_p == 0) return s;
  s.samples = b.input<const int32_t>(at + 2);
  s.positions = b.input<const int32_t>(at + 3);
  s.key_positions = b.input<const int32_t>(at + 4);
  // Both shardings count query heads: first by KV group, then inside the group.
  const program::Part *groups = b.part(Dim::KvHeads), *heads = b.part(Dim::Heads);
  QUINTET_CHECK(groups != nullptr && heads != nullptr, "[{}] does not know which heads it has",
                b.instr->op->name);
  s.head_offset = groups->begin + heads->begin * groups->size / groups->global;
  return s;
}

size_t dropout_seed(const Instr& i) { return attention_places(i)->documents + 5; }
size_t results_before(const Instr& i) {
  return attention_places(i)->documents + (i.attrs.real("dropout") > 0 ? 6 : 2);
}

namespace {

int64_t attention_bytes(const Instr& i, int threads) {
  const kernels::cpu::AttentionShape s{attention_geometry(i)};
  return with_type(i.in[0].type.dtype,
                   [&]<class T>(T) { return kernels::cpu::attention_workspace_bytes<T>(s, threads); });
}
int64_t attention_dx_bytes(const Instr& i, int threads) {
  const kernels::cpu::AttentionShape s{attention_geometry(i)};
  return with_type(i.in[0].type.dtype, [&]<class T>(T) {
    return kernels::cpu::attention_backward_workspace_bytes<T>(s, threads);
  });
}

int64_t sink_dw_bytes(const Instr& i, int) { return sums_bytes(i, {0}); }

}  // namespace

const std::vector<Scratch>& attention_scratch() {
  static const std::vector<Scratch> table = {
      {&graph::kAttention, attention_bytes, cuda::attention_bytes},
      {&graph::kAttentionDx, attention_dx_bytes, cuda::attention_bytes},
      {&graph::kQkvAttention, attention_bytes, cuda::attention_bytes},
      {&graph::kQkvAttentionDx, attention_dx_bytes, cuda::attention_bytes},
      {&graph::kAttentionSinkDw, sink_dw_bytes, nullptr},
      {&graph::kAttentionHop, attention_bytes, cuda::attention_bytes},
      {&graph::kAttentionHopDx, attention_dx_bytes, cuda::attention_bytes}};
  return table;
}

}  // namespace quintet::exec
