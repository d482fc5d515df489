// How the tiled attention kernels split their work, and the scratch that follows: free of vendor headers, so
// that plans made without CUDA compute the same bytes.
#pragma once

#include "kernels/attention_interval.h"
#include "kernels/cuda/attention/attention.h"

namespace quintet::kernels::cuda {

// Head sizes that kernels exist for; others use the next larger ones, padded with zeros.
struct HeadSizes {
  int qk, value;
};
inline constexpr HeadSizes kHeadSizes[] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};

// Rows per block: queries (tokens times the heads that share a KV head) or keys.
constexpr int forward_rows(HeadSizes d) { return d.qk > 192 ? 64 : 128; }
constexpr int dq_rows(HeadSizes d) { return d.qk > 128 ? 64 : 128; }
constexpr int dkv_keys(HeadSizes d) { return d.qk > 64 ? 64 : 128; }
constexpr int dkv_rows(HeadSizes d) { return d.qk > 128 ? 32 : 64; }

// The Hopper kernels: tiles no smaller than those above, whose number decides the scratch.
// `extra`: with a soft cap or dropout, which need registers.
constexpr int hopper_forward_rows(HeadSizes d, bool extra) { return d.qk > 64 || extra ? 128 : 192; }
inline constexpr int kHopperDqRows = 128;
// Whether one warpgroup sums dv and the other dk (hopper_pair.cuh): their registers hold only one of them.
constexpr bool hopper_pairs(HeadSizes d) { return d.qk > 128; }
constexpr int hopper_dkv_keys(HeadSizes d) { return hopper_pairs(d) ? 64 : 128; }
constexpr int hopper_dkv_rows(HeadSizes d, bool extra) { return d.qk > 64 || extra ? 64 : 128; }
// Query heads that share a KV head: they are rows of one tile.
inline constexpr int kHopperGroup = 64;

constexpr HeadSizes head_sizes(int64_t head_dim, int64_t value_dim) {
  for (const HeadSizes& d : kHeadSizes)
    if (head_dim <= d.qk && value_dim <= d.value) return d;
  return {0, 0};
}

// Whether Hopper's backward pass is the fused one: not where two runs must give the same bits, not for long
// heads, and not for windows unless heads are short: its passes over dq then cost more than they save.
inline bool fuses_backward(const AttentionShape& s) {
  const HeadSizes sizes = head_sizes(s.head_dim, s.value_dim);
  return !s.deterministic && !hopper_pairs(sizes) && (s.window == 0 || sizes.qk <= 64) &&
         s.heads / s.kv_heads <= kHopperGroup && s.dropout_p == 0;
}
// Its KV heads at a time: as many as have sums of dq within this limit, at least one.
inline constexpr int64_t kDqSumBytes = int64_t{256} << 20;
inline int64_t dq_sum_bytes(const AttentionShape& s) {  // of one KV head, in panels of 64 columns
  return s.q_rows.rows() * (s.heads / s.kv_heads) *
         ((head_sizes(s.head_dim, s.value_dim).qk + 63) / 64 * 64) * int64_t{sizeof(float)};
}
inline int64_t fused_kv_heads(const AttentionShape& s) {
  const int64_t most = kDqSumBytes / dq_sum_bytes(s);
  return most < 1 ? 1 : most < s.kv_heads ? most : s.kv_heads;
}

// Tiles of `size` rows that cover a buffer; none crosses the end of a run.
constexpr int64_t tile_count(int64_t run_length, int64_t runs, int64_t sequences, int64_t size) {
  return (run_length + size - 1) / size * runs * sequences;
}

// The scratch of one call, as byte offsets from its start.
struct TiledScratch {
  int64_t spans = 0;    // of documents, [sequences, seq_len]
  int64_t refused = 0;  // [sequences]
  int64_t items = 0;    // one count of items
  int64_t visible = 0;  // two counts of tiles: of queries, of keys
  int64_t q_order = 0, k_order = 0;
  int64_t delta =
      0;  // [heads, rows of q]; on Hopper lse and delta of [kv heads, rows of q, heads of a group]
  int64_t dq_sum = 0;  // of fused_kv_heads()
  int64_t bytes = 0;
};
TiledScratch tiled_scratch(const AttentionShape& shape, bool backward);

}  // namespace quintet::kernels::cuda
