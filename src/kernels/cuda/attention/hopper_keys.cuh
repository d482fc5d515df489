// Shared by the Hopper kernels that own a tile of keys and stream queries, with scores transposed: their
// tiles in shared memory, the producer that fills them, and the weights of a block.
#pragma once

#include <climits>

#include "kernels/cuda/attention/hopper.cuh"

namespace quintet::kernels::cuda {

inline constexpr int kBackwardThreads = 3 * 128;

template <int kWidth>
struct HopperKeys {
  static constexpr int kKeys = kHopperDkvKeys, kRows = hopper_dkv_rows(kWidth), kStages = 2;
  static constexpr int kPanels = kWidth / 64;
  static constexpr int kRowBytes = kRows * kWidth * 2, kKeyBytes = kKeys * kWidth * 2;
  static constexpr uint32_t kRowPanel = kRows * 128, kKeyPanel = kKeys * 128;
  // Copies start at multiples of 16 bytes: one row early where the first index is odd.
  static constexpr int kStatRows = kRows + 2, kStatBytes = (kStatRows * 8 + 127) / 128 * 128;
  // Keys, values and the stages of queries, and what aligning them takes.
  static constexpr int kBytes = 2 * kKeyBytes + kStages * (2 * kRowBytes + kStatBytes) + 1024;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

__device__ __forceinline__ void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A block of queries in a stage of shared memory, as the producer describes it to the consumers.
struct alignas(16) KeyBlock {
  int position, row, rows;  // its first token, its first row of packed heads, and their number
  int flags;
  static constexpr int kMasked = 1, kLast = 2;  // some pairs are not visible; the last one of its item
};
inline constexpr int kNoMoreItems = INT_MIN;

// In shared memory: what the producer and the consumers exchange.
template <int kWidth>
struct KeyExchange {
  uint64_t kv_full, kv_empty, full[HopperKeys<kWidth>::kStages], empty[HopperKeys<kWidth>::kStages];
  KeyBlock blocks[HopperKeys<kWidth>::kStages];
  int item;  // its complement where no query sees its keys
};

// Addresses in shared memory. `extra` bytes lie between the queries and their lse and delta.
template <int kWidth>
struct KeyTiles {
  using Sizes = HopperKeys<kWidth>;
  uint32_t base, k, v, q, dout, extra, stats;
  __device__ __forceinline__ explicit KeyTiles(uint32_t extra_bytes)
      : base(shared_address(tiled_memory)),
        k((base + 1023) / 1024 * 1024),
        v(k + Sizes::kKeyBytes),
        q(v + Sizes::kKeyBytes),
        dout(q + Sizes::kStages * Sizes::kRowBytes),
        extra(dout + Sizes::kStages * Sizes::kRowBytes),
        stats(extra + extra_bytes) {}
  // lse and delta of this lane's first row of a block that begins at row first_row of packed heads.
  __device__ __forceinline__ const float2* stats_of(int stage, int first_row, int lane) const {
    return reinterpret_cast<const float2*>(tiled_memory + (stats - base) + stage * Sizes::kStatBytes) +
           (first_row & 1) + lane % 4 * 2;
  }
};

template <int kWidth>
__device__ __forceinline__ void begin_key_tiles(const TiledProblem& p, const KeyTiles<kWidth>& tiles,
                                                KeyExchange<kWidth>& exchange, int thread) {
  using Sizes = HopperKeys<kWidth>;
  // Rows that no copy writes, where heads do not fill a tile, must be zeros: they are terms of dk and dv.
  const int filled = p.packing.tokens * p.group, left = (Sizes::kRows - filled) * 8;
  for (int at = thread; at < 2 * Sizes::kStages * Sizes::kPanels * left; at += kBackwardThreads) {
    const uint32_t to = tiles.q + static_cast<uint32_t>(at / left) * Sizes::kRowPanel +
                        static_cast<uint32_t>(filled * 128 + at % left * 16);
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  }
  publish_shared();
  if (thread == 0) {
    make_barrier(&exchange.kv_full, 1);
    make_barrier(&exchange.kv_empty, 2);
    for (int s = 0; s < Sizes::kStages; ++s) {
      make_barrier(&exchange.full[s], 1);
      make_barrier(&exchange.empty[s], 2);
    }
    publish_barriers();
  }
  __syncthreads();
}

// A tile of keys, and the queries that see any and that see all of them.
__device__ __forceinline__ HopperTile key_item(const TiledProblem& p, int item) {
  const int rank = item / p.kv_span;
  HopperTile at{
      p.kv_begin + item % p.kv_span,
      row_tile(p.k_rows, kHopperDkvKeys, p.order != nullptr ? static_cast<int>(p.order[rank]) : rank),
      {},
      {}};
  const Span first = p.queries(at.tile.sequence, at.tile.position),
             last = p.queries(at.tile.sequence, at.tile.position + at.tile.count - 1);
  at.keys = {first.begin, last.end};
  at.all = {last.begin, first.end};
  return at;
}

// The producer: one thread copies the keys and values of every item, and the queries that see them. Items are
// sorted by descending cost and taken by whichever block is free.
template <class Walk, int kWidth>
__device__ __forceinline__ void stream_queries(const TiledProblem& p, const KeyTiles<kWidth>& tiles,
                                               KeyExchange<kWidth>& exchange, int items,
                                               const CUtensorMap& q_map, const CUtensorMap& dout_map,
                                               const CUtensorMap& k_map, const CUtensorMap& v_map,
                                               const CUtensorMap& stats_map) {
  using Sizes = HopperKeys<kWidth>;
  const int tokens = p.packing.tokens;
  Turn turn, kv_turn;
  int item = static_cast<int>(blockIdx.x);
  for (;; item = static_cast<int>(gridDim.x) + atomicAdd(p.items_taken, 1)) {
    if (item >= items) break;
    const HopperTile at = key_item(p, item);
    if (p.idle(at.tile.sequence)) continue;
    Walk walk;
    bool more = walk.next(p.q_rows, at.tile.sequence, at.keys, tokens);
    await_turn(&exchange.kv_empty, kv_turn.parity ^ 1);
    exchange.item = more ? item : ~item;
    kv_turn.advance<1>();
    if (!more) {
      arrive(&exchange.kv_full);
      continue;
    }
    announce(&exchange.kv_full, 2 * Sizes::kKeyBytes);
    for (int c = 0; c < Sizes::kPanels; ++c) {
      const uint32_t panel = c * Sizes::kKeyPanel;
      copy_box(tiles.k + panel, &k_map, c * 64, at.kv_head, at.tile.row, &exchange.kv_full);
      copy_box(tiles.v + panel, &v_map, c * 64, at.kv_head, at.tile.row, &exchange.kv_full);
    }
    while (more) {
      const int row = walk.row, position = walk.position, rows = walk.count(tokens) * p.group;
      more = walk.next(p.q_rows, at.tile.sequence, at.keys, tokens);
      const bool masked = at.all.begin > position || (at.all.end - position) * p.group < Sizes::kRows ||
                          rows < Sizes::kRows || at.tile.count < Sizes::kKeys;
      uint64_t* const barrier = &exchange.full[turn.stage];
      await_turn(&exchange.empty[turn.stage], turn.parity ^ 1);
      exchange.blocks[turn.stage] = {position, row * p.group, rows,
                                     (masked ? KeyBlock::kMasked : 0) | (more ? 0 : KeyBlock::kLast)};
      announce(barrier, static_cast<uint32_t>(tokens * p.group * kWidth * 2 * 2 + Sizes::kStatRows * 8));
      for (int c = 0; c < Sizes::kPanels; ++c) {
        const uint32_t panel = (turn.stage * Sizes::kPanels + c) * Sizes::kRowPanel;
        copy_box(tiles.q + panel, &q_map, c * 64, at.kv_head * p.group, row, barrier);
        copy_box(tiles.dout + panel, &dout_map, c * 64, at.kv_head * p.group, row, barrier);
      }
      copy_box(tiles.stats + turn.stage * Sizes::kStatBytes, &stats_map, row * p.group & ~1, at.kv_head,
               barrier);
      turn.advance<Sizes::kStages>();
    }
  }
  await_turn(&exchange.kv_empty, kv_turn.parity ^ 1);
  exchange.item = kNoMoreItems;
  arrive(&exchange.kv_full);
}

// The consumers' side: calls each(tile, whether any query sees its keys) for every item. `each` must arrive
// at kv_empty when it no longer reads the keys.
template <int kWidth, class Each>
__device__ __forceinline__ void for_each_item(const TiledProblem& p, KeyExchange<kWidth>& exchange,
                                              const Each& each) {
  Turn turn;
  for (;;) {
    await_turn(&exchange.kv_full, turn.parity);
    turn.advance<1>();
    const int item = *static_cast<const volatile int*>(&exchange.item);
    if (item == kNoMoreItems) return;
    each(key_item(p, item < 0 ? ~item : item), item >= 0);
  }
}
// The block in a stage; it may be read until the stage is released.
__device__ __forceinline__ KeyBlock load_block(const KeyBlock& from) {
  KeyBlock b;
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(b.position), "=r"(b.row), "=r"(b.rows), "=r"(b.flags)
               : "r"(shared_address(&from)));
  return b;
}
// A warpgroup's 128 threads.
__device__ __forceinline__ void meet_warpgroup(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(2 + group) : "memory");
}

// The queries that see keys r and r + 8 of a tile, kept in shared memory.
struct KeyQueries {
  const Span* at;
  __device__ __forceinline__ KeyQueries(const TiledProblem& p, const RowTile& tile, int r, Span* to, int lane)
      : at(to) {
    __syncwarp();
    if (lane % 4 == 0)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        to[8 * h] = r + 8 * h < tile.count ? p.queries(tile.sequence, tile.position + r + 8 * h) : Span{0, 0};
    __syncwarp();
  }
  __device__ __forceinline__ Span of(int h) const { return at[8 * h]; }
};

// Scores of a block become weights. A block that all keys see fully has no comparisons.
template <int kWidth>
__device__ __forceinline__ void weigh_block(const TiledProblem& p, const KeyQueries& queries,
                                            const KeyBlock& block, float unit, const float2* stats, int lane,
                                            float (&s)[HopperKeys<kWidth>::kRows / 2]) {
  const auto weigh = [&](auto sees) {
#pragma unroll
    for (int j = 0; j < HopperKeys<kWidth>::kRows / 8; ++j) {
      const float lse[2] = {stats[j * 8].x, stats[j * 8 + 1].x};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = s[j * 4 + i];
        const float weight = exp2_fast(fmaf(x, unit, -lse[i % 2]));
        x = sees(i / 2, j * 8 + i % 2) ? weight : 0.0f;
      }
    }
  };
  if ((block.flags & KeyBlock::kMasked) != 0) {
    int from[2], to[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      from[h] = (queries.of(h).begin - block.position) * p.group - lane % 4 * 2;
      to[h] = lesser((queries.of(h).end - block.position) * p.group, block.rows) - lane % 4 * 2;
    }
    weigh([&](int h, int row) { return row >= from[h] && row < to[h]; });
  } else {
    weigh([](int, int) { return true; });
  }
}

// Writes dk and dv of keys r and r + 8 of a tile.
template <class T, int kWidth>
__device__ __forceinline__ void store_key_gradients(const TiledProblem& p, const HopperTile& at, int r,
                                                    const float (&dk)[kWidth / 2],
                                                    const float (&dv)[kWidth / 2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t row = at.tile.row + r + 8 * h, column = static_cast<int64_t>(at.kv_head) * kWidth;
    const bool inside = r + 8 * h < at.tile.count;
    store_row<T>(reinterpret_cast<const float(&)[kWidth / 8][4]>(dk), h, p.scale,
                 static_cast<T*>(p.dk) + row * p.dk_stride + column, kWidth, inside);
    store_row<T>(reinterpret_cast<const float(&)[kWidth / 8][4]>(dv), h, 1.0f,
                 static_cast<T*>(p.dv) + row * p.dv_stride + column, kWidth, inside);
  }
}

#endif

}  // namespace quintet::kernels::cuda
