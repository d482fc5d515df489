// Scratch and limits of the tiled attention kernels (kernels/cuda/attention/tiled.h).
#include "kernels/cuda/attention/tile_sizes.h"
#include "kernels/cuda/attention/tiled.h"
#include "kernels/cuda_scratch/sizes.h"

namespace quintet::kernels::cuda {

bool TiledAttention::suits(const AttentionShape& s, base::DType type) {
  if (type != base::DType::BF16 && type != base::DType::F16) return false;
  for (const int64_t n : {s.head_dim, s.value_dim, s.q_stride, s.k_stride, s.v_stride, s.o_stride,
                          s.dq_stride, s.dk_stride, s.dv_stride})
    if (n <= 0 || n % 8 != 0) return false;
  constexpr int64_t kMaxTiles = int64_t{1} << 28;  // of rows, and of the blocks of a launch
  const int64_t tiles = (s.q_rows.rows() + s.k_rows.rows()) * s.heads;
  return s.kv_heads > 0 && s.heads % s.kv_heads == 0 && head_sizes(s.head_dim, s.value_dim).qk > 0 &&
         s.scale > 0 && s.q_rows.sequences > 0 && s.q_rows.rows() > 0 && s.k_rows.rows() > 0 &&
         tiles < kMaxTiles;
}

TiledScratch tiled_scratch(const AttentionShape& s, bool backward) {
  const HeadSizes sizes = head_sizes(s.head_dim, s.value_dim);
  const int group = static_cast<int>(s.heads / s.kv_heads);
  TiledScratch at;
  const auto take = [&](int64_t bytes) {
    const int64_t begin = at.bytes;
    at.bytes += aligned(bytes);
    return begin;
  };
  const auto order = [&](const base::RowOrder& rows, int64_t size) {
    return take(tile_count(rows.run_length(), rows.runs(), rows.sequences, size) * int64_t{sizeof(uint32_t)});
  };
  at.refused = take((s.k_rows.sequences + 3) * int64_t{sizeof(int32_t)});
  at.items = at.refused + s.k_rows.sequences * int64_t{sizeof(int32_t)};
  at.visible = at.items + int64_t{sizeof(int32_t)};
  at.spans = take(s.k_rows.sequences * s.k_rows.seq_len * int64_t{sizeof(Span)});
  at.q_order = order(s.q_rows, HeadPacking(group, backward ? dq_rows(sizes) : forward_rows(sizes)).tokens);
  if (!backward) return at;
  at.k_order = order(s.k_rows, dkv_keys(sizes));
  at.delta = take((s.q_rows.rows() * s.heads + s.kv_heads) * 2 * int64_t{sizeof(float)});
  if (fuses_backward(s)) at.dq_sum = take(fused_kv_heads(s) * dq_sum_bytes(s));
  return at;
}

int64_t TiledAttention::workspace_bytes(const AttentionShape& s, bool backward) {
  return tiled_scratch(s, backward).bytes;
}

}  // namespace quintet::kernels::cuda
