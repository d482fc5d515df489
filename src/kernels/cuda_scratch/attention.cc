#include "kernels/cuda_scratch/attention.h"

#include <algorithm>
#include <iterator>

#include "kernels/attention_part.h"
#include "kernels/cuda/attention/hops.h"
#include "kernels/cuda_scratch/sizes.h"

namespace quintet::kernels::cuda {

template <class T>
int64_t attention_backward_workspace_bytes(const AttentionShape& shape) {
  return shape.q_rows.rows() * shape.heads * static_cast<int64_t>(sizeof(Stat<T>));
}
template int64_t attention_backward_workspace_bytes<double>(const AttentionShape&);
template int64_t attention_backward_workspace_bytes<float>(const AttentionShape&);
template int64_t attention_backward_workspace_bytes<Bf16>(const AttentionShape&);
template int64_t attention_backward_workspace_bytes<F16>(const AttentionShape&);

int64_t attention_library_bytes(const AttentionShape& s, AttentionMasks masks, bool backward,
                                int64_t sequences, int64_t heads) {
  constexpr int64_t kSlack = 16 << 20;
  if (!backward) return kSlack;
  const int64_t rows = sequences * heads * s.q_rows.rows_per_sequence();
  int64_t per_row = int64_t{sizeof(float)};
  per_row += s.deterministic ? (s.k_rows.rows_per_sequence() + 127) / 128 * 128 * 2 : 4 * s.head_dim;
  // dk and dv of every query head.
  const int64_t wide = masks == AttentionMasks::Dense ? 2 : 4;
  if (s.heads != s.kv_heads) per_row += wide * (s.head_dim + s.value_dim);
  return rows * per_row + kSlack;
}

int64_t attention_own_bytes(const AttentionShape& s, AttentionMasks masks, bool backward) {
  const int64_t stats = s.q_rows.rows() * s.heads * int64_t{sizeof(float)};
  if (masks == AttentionMasks::Dense) return backward ? aligned(stats) : 0;
  const int64_t plain = backward ? aligned(attention_backward_workspace_bytes<Bf16>(s)) : 0;
  return aligned(segments_bytes(Attention::segments(s))) + aligned(stats) + plain;
}

bool Attention::suits(const AttentionShape& s, AttentionMasks masks, base::DType type) {
  const auto width = [](int64_t n) { return n > 0 && n % 8 == 0 && n <= 256; };
  const int64_t strides[] = {s.q_stride, s.k_stride, s.v_stride, s.o_stride};
  for (const int64_t stride : strides)
    if (stride % 8 != 0) return false;
  // Segment offsets are 32-bit numbers.
  const int64_t most = *std::max_element(std::begin(strides), std::end(strides)) * s.q_rows.rows();
  const std::optional<AttentionPart> part = visible_part(s);
  return (type == base::DType::BF16 || type == base::DType::F16) && s.dropout_p == 0 && part.has_value() &&
         (masks == AttentionMasks::Dense || s.q_rows.ranks == 1) && part->q.count > 1 && part->k.count > 1 &&
         s.q_rows.sequences > 0 && s.kv_heads > 0 && width(s.head_dim) && width(s.value_dim) &&
         s.dq_stride == s.q_stride && s.dk_stride == s.k_stride && s.dv_stride == s.v_stride &&
         most < (int64_t{1} << 31);
}

bool Attention::has_gradients(const AttentionShape& s, AttentionMasks masks) {
  return !s.deterministic || masks == AttentionMasks::Dense;
}

int64_t Attention::segments(const AttentionShape& s) {
  return s.q_rows.sequences * std::clamp<int64_t>(s.q_rows.seq_len / 128, 1, 64);
}

// Everything if it fits, otherwise as much as there is memory for, but always enough for one KV group (of
// one sequence, where sequences can be separated), estimated generously: cuDNN has no plan with less.
int64_t Attention::workspace_bytes(const AttentionShape& s, AttentionMasks masks, bool backward) {
  const bool dense = masks == AttentionMasks::Dense;
  const int64_t own = attention_own_bytes(s, masks, backward);
  if (backward && s.deterministic && !dense) return own;  // no plan
  const int64_t all = attention_library_bytes(s, masks, backward, s.q_rows.sequences, s.heads);
  const int64_t least =
      attention_library_bytes(s, masks, backward, dense ? 1 : s.q_rows.sequences, s.heads / s.kv_heads) * 3 /
      2;
  return own + aligned(std::max(std::min(all, kWorkspaceBytes), least));
}

int64_t AttentionHops::hops(const AttentionShape& s) {
  const base::RowOrder &q = s.q_rows, &k = s.k_rows;
  return k.count == k.ranks && k.count > q.count && k.count % q.count == 0 ? k.count / q.count : 1;
}
AttentionShape AttentionHops::hop_shape(const AttentionShape& s, int64_t source) {
  AttentionShape t = s;
  t.k_rows.first = source * s.q_rows.count;
  t.k_rows.count = s.q_rows.count;
  return t;
}

AttentionShape AttentionHops::library_shape(const AttentionShape& s) {
  AttentionShape t = s;
  t.q_rows = ascending(s.q_rows);
  t.k_rows = ascending(s.k_rows);
  if (s.q_rows.count == 1) return t;
  t.q_stride = t.dq_stride = s.heads * s.head_dim;
  t.k_stride = t.dk_stride = s.kv_heads * s.head_dim;
  t.v_stride = t.dv_stride = s.kv_heads * s.value_dim;
  t.o_stride = s.heads * s.value_dim;
  return t;
}

HopScratch hop_scratch(const AttentionShape& s, bool backward) {
  constexpr int64_t kHalfBytes = 2;
  const AttentionShape t = AttentionHops::library_shape(s);
  HopScratch at{.sorts = s.q_rows.count > 1};
  const auto take = [&](int64_t bytes) {
    const int64_t begin = at.bytes;
    at.bytes += aligned(bytes);
    return begin;
  };
  const auto rows_of = [&](const base::RowOrder& rows, int64_t stride) {
    return take(rows.rows() * stride * kHalfBytes);
  };
  if (!backward || at.sorts) {
    at.o = rows_of(t.q_rows, t.o_stride);
    at.lse = take(t.q_rows.rows() * t.heads * int64_t{sizeof(float)});
  }
  if (backward) at.dq = rows_of(t.q_rows, t.dq_stride);
  if (!at.sorts) return at;
  at.q = rows_of(t.q_rows, t.q_stride);
  at.k = rows_of(t.k_rows, t.k_stride);
  at.v = rows_of(t.k_rows, t.v_stride);
  at.documents = take(t.q_rows.rows() * int64_t{sizeof(int32_t)});
  if (!backward) return at;
  at.dout = rows_of(t.q_rows, t.o_stride);
  at.dk = rows_of(t.k_rows, t.dk_stride);
  at.dv = rows_of(t.k_rows, t.dv_stride);
  return at;
}

int64_t running_bytes(const AttentionShape& s, bool backward) {
  return aligned(s.q_rows.rows() * (backward ? s.dq_stride : s.o_stride) * int64_t{sizeof(float)});
}

bool AttentionHops::suits(const AttentionShape& s, AttentionMasks masks, base::DType type) {
  for (const int64_t stride :
       {s.q_stride, s.k_stride, s.v_stride, s.o_stride, s.dq_stride, s.dk_stride, s.dv_stride})
    if (stride % 8 != 0) return false;
  for (int64_t source = 0, n = hops(s); source < n && n > 1; ++source)
    if (!suits(hop_shape(s, source), masks, type)) return false;
  return hops(s) > 1 || Attention::suits(library_shape(s), masks, type);
}
int64_t AttentionHops::workspace_bytes(const AttentionShape& s, AttentionMasks masks, bool backward) {
  if (hops(s) > 1) return running_bytes(s, backward) + workspace_bytes(hop_shape(s, 0), masks, backward);
  return hop_scratch(s, backward).bytes + Attention::workspace_bytes(library_shape(s), masks, backward);
}

}  // namespace quintet::kernels::cuda
