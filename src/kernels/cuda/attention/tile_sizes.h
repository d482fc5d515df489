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
constexpr int hopper_forward_rows(int width) { return width > 64 ? 128 : 192; }
inline constexpr int kHopperDqRows = 128, kHopperDkvKeys = 128;
constexpr int hopper_dkv_rows(int width) { return width > 64 ? 64 : 128; }

constexpr HeadSizes head_sizes(int64_t head_dim, int64_t value_dim) {
  for (const HeadSizes& d : kHeadSizes)
    if (head_dim <= d.qk && value_dim <= d.value) return d;
  return {0, 0};
}

// Tiles of `size` rows that cover a buffer; none crosses the end of a run.
constexpr int64_t tile_count(int64_t run_length, int64_t runs, int64_t sequences, int64_t size) {
  return (run_length + size - 1) / size * runs * sequences;
}

// The scratch of one call, as byte offsets from its start.
struct TiledScratch {
  int64_t spans = 0;    // of documents, [sequences, seq_len]
  int64_t refused = 0;  // [sequences]
  int64_t q_order = 0, k_order = 0;
  int64_t delta =
      0;  // [heads, rows of q]; on Hopper lse and delta of [kv heads, rows of q, heads of a group]
  int64_t bytes = 0;
};
TiledScratch tiled_scratch(const AttentionShape& shape, bool backward);

}  // namespace quintet::kernels::cuda
