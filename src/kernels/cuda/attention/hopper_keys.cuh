// Shared by the Hopper kernels that own a tile of keys and stream queries, with scores transposed: their
// tiles in shared memory, the producer that fills them, and the weights of a block.
#pragma once

#include <climits>

#include "kernels/cuda/attention/hopper.cuh"

namespace quintet::kernels::cuda {

inline constexpr int kBackwardThreads = 3 * 128, kConsumerWarps = 8;

// Tiles of kRows query rows, and of as many keys as hopper_dkv_keys() says.
template <int kQk, int kValue, int kRowsOfTile>
struct HopperKeys {
  static constexpr int kKeys = hopper_dkv_keys({kQk, kValue}), kRows = kRowsOfTile, kStages = 2;
  static constexpr int kQkPanels = (kQk + 63) / 64, kValuePanels = (kValue + 63) / 64;
  static constexpr uint32_t kRowPanel = kRows * 128, kKeyPanel = kKeys * 128;
  static constexpr int kQBytes = kQkPanels * kRows * 128, kDoutBytes = kValuePanels * kRows * 128,
                       kKBytes = kQkPanels * kKeys * 128, kVBytes = kValuePanels * kKeys * 128;
  // Copies start at multiples of 16 bytes: one row early where the first index is odd.
  static constexpr int kStatRows = kRows + 2, kStatBytes = (kStatRows * 8 + 127) / 128 * 128;
  // Keys, values and the stages of queries, and what aligning them takes.
  static constexpr int kBytes = kKBytes + kVBytes + kStages * (kQBytes + kDoutBytes + kStatBytes) + 1024;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// A block of queries in a stage of shared memory, as the producer describes it to the consumers.
struct alignas(16) KeyBlock {
  int position, row, rows;  // its first token, its first row of packed heads, and their number
  int flags;
  // Some pairs are not visible, or the first row is odd; the last one of its item.
  static constexpr int kMasked = 1, kLast = 2;
};
inline constexpr int kNoMoreItems = INT_MIN;

// lse and delta of a lane's rows of a block, in shared memory: rows j * 8 and j * 8 + 1 from its first one.
struct RowStats {
  const float* at;  // the pair that holds the first of them
  int odd;          // whether it is the second of that pair
  __device__ __forceinline__ float2 lse(int j) const { return {at[j * 16 + odd], at[j * 16 + 1 + 3 * odd]}; }
  __device__ __forceinline__ float2 delta(int j) const {
    return {at[j * 16 + 2 + odd], at[j * 16 + 3 + 3 * odd]};
  }
  // In blocks that begin at an even row, by one load.
  __device__ __forceinline__ float2 even_lse(int j) const {
    return *reinterpret_cast<const float2*>(at + j * 16);
  }
  __device__ __forceinline__ float2 even_delta(int j) const {
    return *reinterpret_cast<const float2*>(at + j * 16 + 2);
  }
};

// In shared memory: what the producer and the consumers exchange.
template <class Sizes>
struct KeyExchange {
  uint64_t kv_full, kv_empty, full[Sizes::kStages], empty[Sizes::kStages];
  KeyBlock blocks[Sizes::kStages];
  int item;  // its complement where no query sees its keys
};

// Addresses in shared memory. `extra` bytes lie between the queries and their lse and delta.
template <class Sizes>
struct KeyTiles {
  uint32_t base, k, v, q, dout, extra, stats;
  __device__ __forceinline__ explicit KeyTiles(uint32_t extra_bytes)
      : base(shared_address(tiled_memory)),
        k((base + 1023) / 1024 * 1024),
        v(k + Sizes::kKBytes),
        q(v + Sizes::kVBytes),
        dout(q + Sizes::kStages * Sizes::kQBytes),
        extra(dout + Sizes::kStages * Sizes::kDoutBytes),
        stats(extra + extra_bytes) {}
  // Of a block that begins at row first_row of packed heads.
  __device__ __forceinline__ RowStats stats_of(int stage, int first_row, int lane) const {
    return {reinterpret_cast<const float*>(tiled_memory + (stats - base) + stage * Sizes::kStatBytes) +
                lane % 4 * 4,
            first_row & 1};
  }
};

template <class Sizes>
__device__ __forceinline__ void begin_key_tiles(const TiledProblem& p, const KeyTiles<Sizes>& tiles,
                                                KeyExchange<Sizes>& exchange, int thread) {
  // Rows that no copy writes, where heads do not fill a tile, must be zeros: they are terms of dk and dv.
  const int filled = p.packing.tokens * p.group, left = (Sizes::kRows - filled) * 8;
  for (int at = thread; at < Sizes::kStages * (Sizes::kQkPanels + Sizes::kValuePanels) * left;
       at += kBackwardThreads) {
    const uint32_t to = tiles.q + static_cast<uint32_t>(at / left) * Sizes::kRowPanel +
                        static_cast<uint32_t>(filled * 128 + at % left * 16);
    asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  }
  publish_shared();
  if (thread == 0) {
    make_barrier(&exchange.kv_full, 1);
    make_barrier(&exchange.kv_empty, kConsumerWarps);
    for (int s = 0; s < Sizes::kStages; ++s) {
      make_barrier(&exchange.full[s], 1);
      make_barrier(&exchange.empty[s], kConsumerWarps);
    }
    publish_barriers();
  }
  __syncthreads();
}

// A tile of keys, and the queries that see any and that see all of them.
template <int kKeys>
__device__ __forceinline__ HopperTile key_item(const TiledProblem& p, int item) {
  const int rank = item / p.kv_span;
  HopperTile at{p.kv_begin + item % p.kv_span,
                row_tile(p.k_rows, kKeys, p.order != nullptr ? static_cast<int>(p.order[rank]) : rank),
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
template <class Walk, class Sizes>
__device__ __forceinline__ void stream_queries(const TiledProblem& p, const KeyTiles<Sizes>& tiles,
                                               KeyExchange<Sizes>& exchange, int items,
                                               const CUtensorMap& q_map, const CUtensorMap& dout_map,
                                               const CUtensorMap& k_map, const CUtensorMap& v_map,
                                               const CUtensorMap& stats_map) {
  const int tokens = p.packing.tokens;
  Turn turn, kv_turn;
  int item = static_cast<int>(blockIdx.x);
  for (;; item = static_cast<int>(gridDim.x) + atomicAdd(p.items_taken, 1)) {
    if (item >= items) break;
    const HopperTile at = key_item<Sizes::kKeys>(p, item);
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
    announce(&exchange.kv_full, Sizes::kKBytes + Sizes::kVBytes);
    for (int c = 0; c < Sizes::kQkPanels; ++c)
      copy_box(tiles.k + c * Sizes::kKeyPanel, &k_map, c * 64, at.kv_head, at.tile.row, &exchange.kv_full);
    for (int c = 0; c < Sizes::kValuePanels; ++c)
      copy_box(tiles.v + c * Sizes::kKeyPanel, &v_map, c * 64, at.kv_head, at.tile.row, &exchange.kv_full);
    while (more) {
      const int row = walk.row, position = walk.position, rows = walk.count(tokens) * p.group;
      more = walk.next(p.q_rows, at.tile.sequence, at.keys, tokens);
      const bool masked = at.all.begin > position || (at.all.end - position) * p.group < Sizes::kRows ||
                          rows < Sizes::kRows || at.tile.count < Sizes::kKeys || (row * p.group & 1) != 0;
      uint64_t* const barrier = &exchange.full[turn.stage];
      await_turn(&exchange.empty[turn.stage], turn.parity ^ 1);
      exchange.blocks[turn.stage] = {position, row * p.group, rows,
                                     (masked ? KeyBlock::kMasked : 0) | (more ? 0 : KeyBlock::kLast)};
      announce(barrier,
               static_cast<uint32_t>(tokens * p.group * (Sizes::kQkPanels + Sizes::kValuePanels) * 128 +
                                     Sizes::kStatRows * 8));
      for (int c = 0; c < Sizes::kQkPanels; ++c)
        copy_box(tiles.q + turn.stage * Sizes::kQBytes + c * Sizes::kRowPanel, &q_map, c * 64,
                 at.kv_head * p.group, row, barrier);
      for (int c = 0; c < Sizes::kValuePanels; ++c)
        copy_box(tiles.dout + turn.stage * Sizes::kDoutBytes + c * Sizes::kRowPanel, &dout_map, c * 64,
                 at.kv_head * p.group, row, barrier);
      copy_box(tiles.stats + turn.stage * Sizes::kStatBytes, &stats_map, row * p.group & ~1, at.kv_head,
               barrier);
      turn.advance<Sizes::kStages>();
    }
  }
  await_turn(&exchange.kv_empty, kv_turn.parity ^ 1);
  exchange.item = kNoMoreItems;
  arrive(&exchange.kv_full);
}

// What the first lane of a warp reads, for all of them: it is also the one that releases it.
template <class Read>
__device__ __forceinline__ int from_first_lane(const Read& read) {
  int value = 0;
  if (threadIdx.x % 32 == 0) value = read();
  return __shfl_sync(0xffffffffu, value, 0);
}
// Tells the producer that this warp no longer reads what the barrier guards.
__device__ __forceinline__ void release(uint64_t* barrier, int lane) {
  __syncwarp();
  if (lane == 0) arrive(barrier);
}

// The consumers' side: calls each(tile, whether any query sees its keys) for every item. `each` must arrive
// at kv_empty when it no longer reads the keys: release().
template <class Sizes, class Each>
__device__ __forceinline__ void for_each_item(const TiledProblem& p, KeyExchange<Sizes>& exchange,
                                              const Each& each) {
  Turn turn;
  for (;;) {
    await_turn(&exchange.kv_full, turn.parity);
    turn.advance<1>();
    const int item = from_first_lane([&] { return *static_cast<const volatile int*>(&exchange.item); });
    if (item == kNoMoreItems) return;
    each(key_item<Sizes::kKeys>(p, item < 0 ? ~item : item), item >= 0);
  }
}
// The block in a stage.
__device__ __forceinline__ KeyBlock load_block(const KeyBlock& from) {
  KeyBlock b{};
  if (threadIdx.x % 32 == 0)
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(b.position), "=r"(b.row), "=r"(b.rows), "=r"(b.flags)
                 : "r"(shared_address(&from)));
  b.position = __shfl_sync(0xffffffffu, b.position, 0);
  b.row = __shfl_sync(0xffffffffu, b.row, 0);
  b.rows = __shfl_sync(0xffffffffu, b.rows, 0);
  b.flags = __shfl_sync(0xffffffffu, b.flags, 0);
  return b;
}
// Releases blocks unread until one for which wanted() holds, which stays, or after the last one of the item;
// whether there is one.
template <class Sizes, class Wanted>
__device__ __forceinline__ bool skip_blocks(KeyExchange<Sizes>& exchange, Turn& turn, KeyBlock& block,
                                            int lane, const Wanted& wanted) {
  do {
    await_turn(&exchange.full[turn.stage], turn.parity);
    block = load_block(exchange.blocks[turn.stage]);
    if (wanted(block)) return true;
    release(&exchange.empty[turn.stage], lane);
    turn.advance<Sizes::kStages>();
  } while ((block.flags & KeyBlock::kLast) == 0);
  return false;
}
// A warpgroup's 128 threads. kUsed: named barriers that have another use, from 1 on.
template <int kUsed = 1>
__device__ __forceinline__ void meet_warpgroup(int group) {
  asm volatile("bar.sync %0, 128;" ::"r"(1 + kUsed + group) : "memory");
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

// The queries that see any of the 64 keys of a tile from `first` on: those of one warpgroup.
__device__ __forceinline__ Span group_queries(const TiledProblem& p, const RowTile& tile, int first) {
  if (first >= tile.count) return {0, 0};
  const int last = lesser(first + 64, tile.count) - 1;
  return {p.queries(tile.sequence, tile.position + first).begin,
          p.queries(tile.sequence, tile.position + last).end};
}

// Scores of a block become weights: each(register, weight, factor of the score's gradient), where the factor
// is that of a soft cap. A block that all keys see fully has no comparisons.
template <bool kExtra, int kRegisters, class Each>
__device__ __forceinline__ void weigh_block(const TiledProblem& p, const KeyQueries& queries,
                                            const KeyBlock& block, const ScoreUnits<kExtra>& units,
                                            const RowStats& stats, int lane, float (&s)[kRegisters],
                                            const Each& each) {
  const auto weigh = [&](auto sees, auto lse_of) {
#pragma unroll
    for (int j = 0; j < kRegisters / 4; ++j) {
      const float2 lse = lse_of(j);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float x = s[j * 4 + i], slope = 1.0f;
        if (units.capped) {
          x = tanh_fast(x * units.inner);
          slope = 1.0f - x * x;
        }
        const float weight = exp2_fast(fmaf(x, units.unit, i % 2 == 0 ? -lse.x : -lse.y));
        each(j * 4 + i, sees(i / 2, j * 8 + i % 2) ? weight : 0.0f, slope);
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
    weigh([&](int h, int row) { return row >= from[h] && row < to[h]; }, [&](int j) { return stats.lse(j); });
  } else {
    weigh([](int, int) { return true; }, [&](int j) { return stats.even_lse(j); });
  }
}

// Calls each(j, delta of the lane's rows j * 8 and j * 8 + 1) for the rows of a block. Those past the block's
// rows may never have been written, and 0 * NaN must not enter the sums. kTwice: blocks without a mask have
// their own code, where the compiler has registers for it and keeps MMAs asynchronous.
template <int kRows, bool kTwice, class Each>
__device__ __forceinline__ void for_each_delta(const KeyBlock& block, const RowStats& stats, int lane,
                                               const Each& each) {
  if (!kTwice || (block.flags & KeyBlock::kMasked) != 0) {
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) {
      const int row = j * 8 + lane % 4 * 2;
      const float2 delta = stats.delta(j);
      each(j, make_float2(row < block.rows ? delta.x : 0.0f, row + 1 < block.rows ? delta.y : 0.0f));
    }
  } else {
#pragma unroll
    for (int j = 0; j < kRows / 8; ++j) each(j, stats.even_delta(j));
  }
}

// Dropout of keys r and r + 8 of a tile, whose indices in the dropout positions are `places`, for the rows of
// a block: bit 2 * j + i is set where the weight in register 4 * j + 2 * h + i is kept.
template <int kRows>
__device__ __forceinline__ void draw_kept(const TiledProblem& p, int kv_head, const KeyBlock& block, int lane,
                                          const int (&places)[2], uint32_t (&bits)[2]) {
  static_assert(kRows <= 128);
  bits[0] = bits[1] = 0;
#pragma unroll 1
  for (int column = 0; column < kRows / 4; ++column) {
    const int r = column / 2 * 8 + lane % 4 * 2 + column % 2;
    if (r >= block.rows) continue;
    const int token = p.packing.token(r);
    const TiledProblem::DropoutRow row =
        p.dropout_row(block.row / p.group + token, kv_head * p.group + r - token * p.group);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      bits[h] |= (p.keeps(p.dropout_words(row, places[h]), places[h]) ? 1u : 0u) << column;
  }
}
__device__ __forceinline__ void find_key_places(const TiledProblem& p, const RowTile& tile, int r,
                                                int (&places)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
    places[h] = r + 8 * h < tile.count ? p.key_position(tile.sequence, tile.position + r + 8 * h) : 0;
}

// With extras: scores become weights, those that dropout keeps packed as the left operand of dv, and in `s`
// the weights times the soft cap's factor, negative where dropped.
template <class T, int kRegisters>
__device__ __forceinline__ void weigh_with_extras(const TiledProblem& p, const KeyQueries& queries,
                                                  int kv_head, const int (&places)[2], const KeyBlock& block,
                                                  const ScoreUnits<true>& units, const RowStats& stats,
                                                  int lane, float (&s)[kRegisters],
                                                  uint32_t (&left)[kRegisters / 8][4]) {
  uint32_t kept[2] = {~0u, ~0u};
  if (p.threshold > 0) draw_kept<kRegisters * 2>(p, kv_head, block, lane, places, kept);
  float previous = 0.0f;
  weigh_block<true>(p, queries, block, units, stats, lane, s, [&](int at, float weight, float slope) {
    const bool stays = (kept[at % 4 / 2] >> (at / 4 * 2 + at % 2) & 1) != 0;
    const float share = stays ? weight : 0.0f;
    if (at % 2 != 0) left[at / 8][at % 8 / 2] = word_of<T>(previous, share);
    previous = share;
    s[at] = stays ? weight * slope : -weight * slope;
  });
}
// dS of a weight that weigh_with_extras() left, in place of dP.
__device__ __forceinline__ float score_gradient(const TiledProblem& p, float weight, float dp, float delta) {
  const bool dropped = (__float_as_uint(weight) >> 31) != 0;
  return fabsf(weight) * ((dropped ? 0.0f : p.threshold > 0 ? dp * p.kept : dp) - delta);
}

// Writes a sum over queries, dk or dv times `factor`, of keys r and r + 8 of a tile.
template <class T, int kRegisters>
__device__ __forceinline__ void store_key_rows(const HopperTile& at, int r, const float (&sum)[kRegisters],
                                               float factor, void* to, int64_t stride, int width) {
#pragma unroll
  for (int h = 0; h < 2; ++h)
    store_row<T>(
        reinterpret_cast<const float(&)[kRegisters / 4][4]>(sum), h, factor,
        static_cast<T*>(to) + (at.tile.row + r + 8 * h) * stride + static_cast<int64_t>(at.kv_head) * width,
        width, r + 8 * h < at.tile.count);
}
template <class T, int kRegisters>
__device__ __forceinline__ void store_dk(const TiledProblem& p, const HopperTile& at, int r,
                                         const float (&dk)[kRegisters]) {
  store_key_rows<T>(at, r, dk, p.scale, p.dk, p.dk_stride, p.head_dim);
}
template <class T, int kRegisters>
__device__ __forceinline__ void store_dv(const TiledProblem& p, const HopperTile& at, int r,
                                         const float (&dv)[kRegisters]) {
  store_key_rows<T>(at, r, dv, p.threshold > 0 ? p.kept : 1.0f, p.dv, p.dv_stride, p.value_dim);
}

#endif

}  // namespace quintet::kernels::cuda
