// Backward on Hopper in one pass over the scores: where hopper_backward.cuh computes S and dP twice, this
// kernel adds every tile's part of dq to sums in global memory. They are added in the order in which blocks
// get there, so two runs may differ in the last bits; deterministic runs use hopper_backward.cuh.
//
// begin_rows stores lse and delta of every row and clears the sums, hopper_fused adds to them, finish_dq
// rounds them.
#pragma once

#include "kernels/cuda/attention/hopper_keys.cuh"

namespace quintet::kernels::cuda {

// The sums of dq are panels of 64 columns, [KV heads of a launch, panels, rows of packed heads, 64],
// so that what a warp adds is contiguous. Where eight columns are stored within a row of a panel: lanes that
// hold one column of neighbouring rows then write different banks of shared memory.
__device__ __forceinline__ int dq_unit(int unit, int packed_row) { return unit ^ (packed_row & 3); }

inline constexpr int kRowThreads = 256, kRowTokens = 16;

// Calls each(token row, head, its panel and row in the sums, lane of the row) for all rows of a tile of
// tokens and the heads of one launch; eight neighbouring lanes per panel call it for a row together.
template <int kPanels, class Each>
__device__ __forceinline__ void for_each_row(const TiledProblem& p, const Each& each) {
  constexpr int kLanes = kPanels * 8;
  const RowTile tile = row_tile(p.q_rows, kRowTokens, static_cast<int>(blockIdx.x));
  if (p.idle(tile.sequence)) return;
  const int heads = p.kv_span * p.group, lane = static_cast<int>(threadIdx.x) % kLanes;
  for (int at = static_cast<int>(threadIdx.x) / kLanes; at < tile.count * heads; at += kRowThreads / kLanes) {
    const int token = at / heads, head = at % heads;
    const int64_t panel = head / p.group * kPanels + lane / 8;
    each(tile.row + token, p.kv_begin * p.group + head,
         p.dq_sum + (panel * p.q_count * p.group + static_cast<int64_t>(tile.row + token) * p.group +
                     head % p.group) *
                        64,
         lane);
  }
}

template <class T, int kPanels>
__global__ void __launch_bounds__(kRowThreads) begin_rows(const __grid_constant__ TiledProblem p) {
  await_previous();
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.items_taken = 0;
  constexpr int kLanes = kPanels * 8;
  for_each_row<kPanels>(p, [&](int row, int head, float* sums, int lane) {
    float delta = 0.0f;
    if (lane * 8 < p.value_dim) {
      const int64_t from =
          static_cast<int64_t>(row) * p.o_stride + static_cast<int64_t>(head) * p.value_dim + lane * 8;
      const auto a = load<8>(static_cast<const T*>(p.o) + from),
                 b = load<8>(static_cast<const T*>(p.dout) + from);
#pragma unroll
      for (int e = 0; e < 8; ++e) delta += a.v[e] * b.v[e];
    }
    __syncwarp(__activemask());
    const unsigned together = __activemask();
#pragma unroll
    for (int d = kLanes / 2; d > 0; d /= 2) delta += __shfl_xor_sync(together, delta, d);
    if (lane == 0)
      store_stats(p, head / p.group, static_cast<int64_t>(row) * p.group + head % p.group,
                  p.lse[static_cast<int64_t>(head) * p.q_count + row] * kLog2E, delta);
    auto* const eight = reinterpret_cast<float4*>(sums + lane % 8 * 8);
    eight[0] = eight[1] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  });
}

template <class T, int kPanels>
__global__ void __launch_bounds__(kRowThreads) finish_dq(const __grid_constant__ TiledProblem p) {
  await_previous();
  for_each_row<kPanels>(p, [&](int row, int head, float* sums, int lane) {
    if (lane * 8 >= p.head_dim) return;
    const int packed_row = row * p.group + head % p.group;
    const float* const from = sums + dq_unit(lane % 8, packed_row) * 8;
    const float4 low = reinterpret_cast<const float4*>(from)[0],
                 high = reinterpret_cast<const float4*>(from)[1];
    float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    const int64_t to =
        static_cast<int64_t>(row) * p.dq_stride + static_cast<int64_t>(head) * p.head_dim + lane * 8;
    if (p.wide) {
      float* const out = static_cast<float*>(p.dq) + to;
#pragma unroll
      for (int e = 0; e < 8; ++e)
        out[e] = x[e] * p.scale + (p.dq_before != nullptr ? p.dq_before[to + e] : 0.0f);
    } else {
      *reinterpret_cast<uint4*>(static_cast<T*>(p.dq) + to) =
          make_uint4(word_of<T>(x[0] * p.scale, x[1] * p.scale), word_of<T>(x[2] * p.scale, x[3] * p.scale),
                     word_of<T>(x[4] * p.scale, x[5] * p.scale), word_of<T>(x[6] * p.scale, x[7] * p.scale));
    }
  });
}

template <int kWidth>
struct HopperFused : HopperKeys<kWidth, kWidth, hopper_dkv_rows({kWidth, kWidth}, false)> {
  using Keys = HopperKeys<kWidth, kWidth, hopper_dkv_rows({kWidth, kWidth}, false)>;
  // Whether dq of a block is computed one block later, so that the two warpgroups need not wait for each
  // other at once. Long rows have no registers for it.
  static constexpr bool kLate = kWidth == 64;
  static constexpr int kScores = 2;  // tiles of dS
  static constexpr int kScoreBytes = Keys::kKeys * Keys::kRows * 2,
                       kSumBytes = Keys::kRows * Keys::kQkPanels * 256;
  static constexpr int kExtraBytes = kScores * kScoreBytes + kSumBytes, kBytes = Keys::kBytes + kExtraBytes;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Both consumer warpgroups.
template <int kBarrier>
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync %0, 256;" ::"n"(kBarrier) : "memory");
}
// Adds `bytes` of floats in shared memory to those in global memory, asynchronously.
__device__ __forceinline__ void add_to_global(float* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(from), "r"(bytes)
               : "memory");
  commit_stores();
}

// Stores what pack_left() left of 64 rows as panels of 64 columns, swizzled; `row` is the warp's first.
template <int kRegisters>
__device__ __forceinline__ void store_packed(const float (&a)[kRegisters], uint32_t tile, uint32_t panel,
                                             int row, int lane) {
  const uint32_t key = static_cast<uint32_t>(row + lane % 16);
#pragma unroll
  for (int k = 0; k < kRegisters / 8; ++k) {
    const uint32_t chunk = static_cast<uint32_t>(2 * k + lane / 16);
    const uint32_t to = tile + chunk / 8 * panel + key * 128 + ((chunk % 8 ^ (key & 7)) << 4);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a[4 * k]),
                 "f"(a[4 * k + 1]), "f"(a[4 * k + 2]), "f"(a[4 * k + 3])
                 : "memory");
  }
}

// Stores a warp's part of dq, 16 rows of 64 columns, into shared memory; `packed_row` is the first one's.
__device__ __forceinline__ void store_dq(const float (&dq)[32], uint32_t to, int packed_row, int lane) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = lane / 4 + 8 * h, column = dq_unit(j, packed_row + row) * 8 + lane % 4 * 2;
      asm volatile(
          "st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + static_cast<uint32_t>(row * 64 + column) * 4),
          "f"(dq[j * 4 + 2 * h]), "f"(dq[j * 4 + 2 * h + 1])
          : "memory");
    }
}

#endif

template <class T, int kWidth>
__global__ void __launch_bounds__(kBackwardThreads, 1)
    hopper_fused(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap dout_map,
                 const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                 const __grid_constant__ CUtensorMap stats_map, const __grid_constant__ TiledProblem p,
                 int tiles) {
  await_previous();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Sizes = HopperFused<kWidth>;
  using Keys = typename Sizes::Keys;
  constexpr int kRows = Sizes::kRows, kKeys = Sizes::kKeys, kStages = Sizes::kStages,
                kPanels = Sizes::kQkPanels;
  constexpr uint32_t kRowPanel = Sizes::kRowPanel, kKeyPanel = Sizes::kKeyPanel;
  __shared__ KeyExchange<Keys> exchange;
  __shared__ Span query_spans[kKeys];
  __shared__ uint64_t ready[Sizes::kScores];  // a tile of dS is complete
  const KeyTiles<Keys> shared(Sizes::kExtraBytes);
  const uint32_t score_tiles = shared.extra, sum_tile = score_tiles + Sizes::kScores * Sizes::kScoreBytes;
  const int thread = static_cast<int>(threadIdx.x), group = thread / 128, lane = thread % 32;
  if (thread == 0)
    for (uint64_t& barrier : ready) make_barrier(&barrier, 8);  // a warp each
  begin_key_tiles(p, shared, exchange, thread);

  if (group == 2) {
    registers_down<24>();
    if (thread % 128 != 0) return;
    const int items = tiles * p.kv_span;
    // Key tiles of one sequence that are computed at the same time share the queries at its end, or with a
    // window the next ones: dq is added to sums in the L2 cache. 10 GB from and to memory become 7 (2 x 8192
    // rows, 32 / 8 heads of 128).
    if (p.rule.window == 0)
      stream_queries<ReverseWalk>(p, shared, exchange, items, q_map, dout_map, k_map, v_map, stats_map);
    else
      stream_queries<BlockWalk>(p, shared, exchange, items, q_map, dout_map, k_map, v_map, stats_map);
    return;
  }

  registers_up<240>();
  const ScoreUnits<false> units(p);
  const int warp_row = thread % 128 / 32 * 16;
  const int own_key = group * 64 + warp_row + lane / 4;  // and own_key + 8
  // dq of a block of queries is split over the warpgroups: long rows by columns, short ones by rows.
  constexpr bool kByColumns = kRows == 64;
  const int dq_row = (kByColumns ? 0 : group * 64) + warp_row;  // the warp's first
  const uint32_t dq_left = score_tiles + (kByColumns ? 0 : group * (kKeys * 128)),
                 dq_right = shared.k + (kByColumns ? group * kKeyPanel : 0),
                 warp_sums = sum_tile + static_cast<uint32_t>(group * 64 + warp_row) * 256;
  const int64_t panel_size = static_cast<int64_t>(p.q_count) * p.group * 64;
  const uint32_t k = shared.k + static_cast<uint32_t>(group) * 8192,
                 v = shared.v + static_cast<uint32_t>(group) * 8192;
  Turn turn;  // of the stages of queries and of the tiles of dS
  for_each_item(p, exchange, [&](const HopperTile& at, bool seen) {
    float dk[kWidth / 2], dv[kWidth / 2];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) dk[i] = dv[i] = 0.0f;
    if (seen) {
      const KeyQueries queries(p, at.tile, own_key, query_spans + own_key, lane);
      float* const sums =
          p.dq_sum + ((at.kv_head - p.kv_begin) * kPanels + (kByColumns ? group : 0)) * panel_size;
      float s[kRows / 2], g[kRows / 2], dq[32];
      const auto multiply_dq = [&](int stage) {
        begin_products();
        columns_product<T, kKeys / 16>(dq, dq_left + stage * Sizes::kScoreBytes, dq_right, kKeyPanel);
        end_products();
      };
      const auto add_dq = [&](int first_row, int rows) {
        if (lane == 0) await_source_read();
        __syncwarp();
        store_dq(dq, warp_sums, first_row + dq_row, lane);
        publish_shared();
        __syncwarp();
        if (lane == 0 && dq_row < rows)
          add_to_global(sums + static_cast<int64_t>(first_row + dq_row) * 64, warp_sums,
                        static_cast<uint32_t>(lesser(rows - dq_row, 16) * 256));
      };
      int last_row = 0, last_rows = 0;  // the previous block's
      KeyBlock block;
      do {
        const uint32_t q = shared.q + turn.stage * Sizes::kQBytes,
                       dout = shared.dout + turn.stage * Sizes::kDoutBytes;
        await_turn(&exchange.full[turn.stage], turn.parity);
        begin_products();
        rows_product<T, kWidth, true>(s, k, kKeyPanel, q, kRowPanel);
        end_products();
        begin_products();
        rows_product<T, kWidth, true>(g, v, kKeyPanel, dout, kRowPanel);
        end_products();
        block = load_block(exchange.blocks[turn.stage]);
        const RowStats stats = shared.stats_of(turn.stage, block.row, lane);
        await_products<1>();
        pin(dk);
        pin(s);
        if (last_rows > 0) release(&exchange.empty[turn.stage ^ 1], lane);
        weigh_block<false>(p, queries, block, units, stats, lane, s,
                           [&](int i, float weight, float) { s[i] = weight; });
        pack_left<T>(s);
        begin_products();
        add_packed_product<T>(dv, s, dout, kRowPanel);
        end_products();
        if constexpr (Sizes::kLate) {
          // In the first block of an item the result has no use.
          if (last_rows > 0) await_turn(&ready[turn.stage ^ 1], turn.parity ^ turn.stage ^ 1);
          multiply_dq(turn.stage ^ 1);
          await_products<2>();
        } else {
          await_products<1>();
        }
        pin(g);
        for_each_delta<kRows, true>(block, stats, lane, [&](int j, float2 delta) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            const float2 weight = pair_of<T>(__float_as_uint(s[2 * j + h]));
            g[j * 4 + 2 * h] = weight.x * (g[j * 4 + 2 * h] - delta.x);
            g[j * 4 + 2 * h + 1] = weight.y * (g[j * 4 + 2 * h + 1] - delta.y);
          }
        });
        pack_left<T>(g);
        const uint32_t scores = score_tiles + turn.stage * Sizes::kScoreBytes;
        if constexpr (Sizes::kLate) {
          await_products<0>();
          pin(dv);
          pin(dq);
        }
        store_packed(g, scores, kKeys * 128, group * 64 + warp_row, lane);
        publish_shared();
        if constexpr (Sizes::kLate) {
          __syncwarp();
          if (lane == 0) arrive(&ready[turn.stage]);
          meet_warpgroup(group);
        } else {
          meet<1>();
          multiply_dq(turn.stage);
        }
        begin_products();
        add_rows_product<T, kRows>(dk, scores + static_cast<uint32_t>(group) * 8192, kKeys * 128, q,
                                   kRowPanel);
        end_products();
        if constexpr (!Sizes::kLate) {
          await_products<1>();
          pin(dv);
          pin(dq);
        }
        if constexpr (Sizes::kLate) {
          if (last_rows > 0) add_dq(last_row, last_rows);
        } else {
          add_dq(block.row, block.rows);
        }
        last_row = block.row;
        last_rows = block.rows;
        turn.advance<kStages>();
      } while ((block.flags & KeyBlock::kLast) == 0);
      if constexpr (Sizes::kLate) {
        await_turn(&ready[turn.stage ^ 1], turn.parity ^ turn.stage ^ 1);
        multiply_dq(turn.stage ^ 1);
      }
      await_products<0>();
      pin(dk);
      if constexpr (Sizes::kLate) {
        pin(dq);
        add_dq(last_row, last_rows);
      }
      release(&exchange.empty[turn.stage ^ 1], lane);
    }
    release(&exchange.kv_empty, lane);
    store_dk<T>(p, at, own_key, dk);
    store_dv<T>(p, at, own_key, dv);
  });
  if (lane == 0) await_stores();
#else
  __trap();
#endif
}

}  // namespace quintet::kernels::cuda
