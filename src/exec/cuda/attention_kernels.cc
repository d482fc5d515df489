// Attention, whole and by hops of a ring: through cuDNN where it has a plan, else by kernels of our own.
#include "exec/cuda/kernel.h"
#include "exec/cuda/libraries.h"
#include "exec/cuda/with_type.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/scalars.h"

namespace quintet::exec::cuda {
namespace {

using graph::Dim;
using graph::Type;
using program::Instr;
namespace k = kernels::cuda;

// The derived key of dropout lies at the start of the scratch.
constexpr int64_t kKeyBytes = k::kWorkspaceAlignment;

// q, k, v start at operand `first`, documents and key_documents at `rest`.
k::AttentionShape attention_shape(const Instr& i, size_t first, size_t rest) {
  const Type &q = i.in[first].type, &key = i.in[first + 1].type, &v = i.in[first + 2].type;
  k::AttentionShape s;
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
                "[{}] of ring rank {}: {} and {} rows of q and k are expected, they have {} and {}",
                i.op->name, rank, s.q_rows.rows(), s.k_rows.rows(), q.size(0), key.size(0));
  s.heads = q.size(1);
  s.kv_heads = key.size(1);
  s.head_dim = q.size(2);
  s.value_dim = v.size(2);
  s.q_stride = s.dq_stride = s.heads * s.head_dim;
  s.k_stride = s.dk_stride = s.kv_heads * s.head_dim;
  s.v_stride = s.dv_stride = s.kv_heads * s.value_dim;
  s.o_stride = s.heads * s.value_dim;
  s.window = i.attrs.integer("window");
  s.scale = i.attrs.real("scale");
  s.dropout_p = i.attrs.real("dropout");
  s.deterministic = i.attrs.integer("deterministic") != 0;
  return s;
}

// The shape with its masks; documents and key_documents stand at `rest`, with dropout samples, positions,
// key_positions and the key follow.
k::AttentionShape bound_shape(const Bound& b, size_t first, size_t rest) {
  k::AttentionShape s = attention_shape(*b.instr, first, rest);
  s.documents = b.input<const int32_t>(rest);
  s.key_documents = b.input<const int32_t>(rest + 1);
  if (s.dropout_p == 0) return s;
  s.samples = b.input<const int32_t>(rest + 2);
  s.positions = b.input<const int32_t>(rest + 3);
  s.key_positions = b.input<const int32_t>(rest + 4);
  auto* key = reinterpret_cast<uint64_t*>(b.workspace);
  k::derive_key(b.input<const int64_t>(rest + 5), static_cast<uint64_t>(b.instr->attrs.integer("salt")), key,
                b.stream);
  s.dropout_key = key;
  // Both divisions count query heads: first by KV group, then inside the group.
  const program::Part *groups = b.part(Dim::KvHeads), *heads = b.part(Dim::Heads);
  QUINTET_CHECK(groups != nullptr && heads != nullptr, "[{}] does not know which heads it has",
                b.instr->op->name);
  s.head_offset = groups->begin + heads->begin * groups->size / groups->global;
  return s;
}

// Where the operands of the hops before stand: behind the indices.
size_t before(const Bound& b, size_t rest) { return rest + (b.instr->attrs.real("dropout") > 0 ? 6 : 2); }
bool first_hop(const Bound& b) { return b.instr->attrs.integer("hop") == 0; }

// Whether documents are told apart: an instruction that says packed = 0 has one document in every sequence.
k::AttentionMasks masks_of(const Instr& i) {
  return i.attrs.integer("packed") == 0 ? k::AttentionMasks::Dense : k::AttentionMasks::Documents;
}

bool suits(const Instr& i, const k::AttentionShape& s, size_t first) {
  return k::Attention::suits(s, i.in[first].type.dtype);
}
// prepare() has asked the library; what it has no plan for is served by our own kernels.
bool by_library(const Bound& b, const k::AttentionShape& s, size_t first, bool backward) {
  return suits(*b.instr, s, first) &&
         b.libraries->attention().prepare(s, masks_of(*b.instr), backward, b.instr->workspace_bytes);
}
void prepare_forward(Bound& b) { by_library(b, attention_shape(*b.instr, 0, 3), 0, false); }
void prepare_backward(Bound& b) { by_library(b, attention_shape(*b.instr, 1, 6), 1, true); }

void attention(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 0, 3);
  if (by_library(b, s, 0, false))
    return b.libraries->attention().forward(
        s, masks_of(*b.instr), b.input<base::Bf16>(0), b.input<base::Bf16>(1), b.input<base::Bf16>(2),
        b.output<base::Bf16>(0), b.output<float>(1), b.workspace, b.instr->workspace_bytes, b.stream);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::attention<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0), b.output<k::Stat<T>>(1),
                    b.stream);
  });
}
int64_t attention_bytes(const Instr& i) {
  const k::AttentionShape s = attention_shape(i, 0, 3);
  return suits(i, s, 0) ? k::Attention::workspace_bytes(s, masks_of(i), false) : kKeyBytes;
}

void attention_hop(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 0, 3);
  const size_t at = before(b, 3);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    using S = k::Stat<T>;
    const S* o = first_hop(b) ? nullptr : b.input<S>(at);
    const S* lse = first_hop(b) ? nullptr : b.input<S>(at + 1);
    k::attention_hop<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), o, lse, b.output<S>(0),
                        b.output<S>(1), b.stream);
  });
}
int64_t attention_hop_bytes(const Instr&) { return kKeyBytes; }

void attention_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 1, 6);
  if (by_library(b, s, 1, true))
    return b.libraries->attention().backward(
        s, masks_of(*b.instr), b.input<base::Bf16>(0), b.input<base::Bf16>(1), b.input<base::Bf16>(2),
        b.input<base::Bf16>(3), b.input<base::Bf16>(4), b.input<float>(5), b.output<base::Bf16>(0),
        b.output<base::Bf16>(1), b.output<base::Bf16>(2), b.workspace, b.instr->workspace_bytes, b.stream);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::attention_backward<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.input<T>(4),
                             b.input<k::Stat<T>>(5), b.output<T>(0), b.output<T>(1), b.output<T>(2),
                             b.workspace + kKeyBytes, b.stream);
  });
}

void attention_hop_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b, 1, 6);
  const size_t at = before(b, 6);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    using S = k::Stat<T>;
    k::attention_hop_backward<T>(s, b.input<T>(0), b.input<T>(1), b.input<T>(2), b.input<T>(3), b.input<T>(4),
                                 b.input<S>(5), first_hop(b) ? nullptr : b.input<S>(at), b.output<S>(0),
                                 b.output<T>(1), b.output<T>(2), b.workspace + kKeyBytes, b.stream);
  });
}

// Of our own kernels, or of the library where it may serve: it may still turn out to have no plan.
int64_t attention_dx_bytes(const Instr& i) {
  const k::AttentionShape s = attention_shape(i, 1, 6);
  const int64_t own = kKeyBytes + with_type(i.in[0].type.dtype, [&]<class T>(T) {
                        return k::attention_backward_workspace_bytes<T>(s);
                      });
  const bool hop = i.attrs.find("hop") != nullptr;
  return hop || !suits(i, s, 1) ? own : std::max(own, k::Attention::workspace_bytes(s, masks_of(i), true));
}

}  // namespace

const std::vector<Kernel>& attention_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kAttention, attention, attention_bytes, prepare_forward},
      {&graph::kAttentionDx, attention_dx, attention_dx_bytes, prepare_backward},
      {&graph::kAttentionHop, attention_hop, attention_hop_bytes},
      {&graph::kAttentionHopDx, attention_hop_dx, attention_dx_bytes}};
  return table;
}

}  // namespace quintet::exec::cuda
