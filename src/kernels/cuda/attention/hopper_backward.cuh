// Backward on Hopper, in two kernels as in tiled_backward.cuh. hopper_dq has two warpgroups of 64 query rows
// each and streams keys; hopper_dkv has two of 64 keys each and streams queries, with scores transposed. dq
// computes lse and delta of every row and stores them in the row order of dkv's tiles.
#pragma once

#include "kernels/cuda/attention/hopper_keys.cuh"

namespace quintet::kernels::cuda {

template <int kQk, int kValue, bool kExtra>
struct HopperDq {
  static constexpr int kRows = kHopperDqRows, kKeys = kQk > 128 || kExtra ? 64 : 128;
  static constexpr int kStages = 2, kVStages = kQk > 192 ? 1 : 2;
  static constexpr int kQkPanels = (kQk + 63) / 64, kValuePanels = (kValue + 63) / 64;
  static constexpr int kQBytes = kRows * kQkPanels * 128, kDoutBytes = kRows * kValuePanels * 128,
                       kKBytes = kKeys * kQkPanels * 128, kVBytes = kKeys * kValuePanels * 128;
  static constexpr int kBytes = kQBytes + kDoutBytes + kStages * kKBytes + kVStages * kVBytes + 1024;
};

template <class T, int kQk, int kValue, bool kExtra>
__global__ void __launch_bounds__(kBackwardThreads, 1)
    hopper_dq(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap dout_map,
              const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
              const __grid_constant__ TiledProblem p, int tiles) {
  await_previous();
  if (blockIdx.x == 0 && threadIdx.x == 0) *p.items_taken = 0;  // for hopper_dkv
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Sizes = HopperDq<kQk, kValue, kExtra>;
  constexpr int kRows = Sizes::kRows, kKeys = Sizes::kKeys, kStages = Sizes::kStages,
                kVStages = Sizes::kVStages;
  constexpr uint32_t kRowPanel = kRows * 128, kKeyPanel = kKeys * 128;
  __shared__ alignas(8) uint64_t q_full, q_empty, k_full[kStages], k_empty[kStages], v_full[kVStages],
      v_empty[kVStages];
  __shared__ float row_delta[kRows];
  const uint32_t q_tile = (shared_address(tiled_memory) + 1023) / 1024 * 1024,
                 dout_tile = q_tile + Sizes::kQBytes, k_tiles = dout_tile + Sizes::kDoutBytes,
                 v_tiles = k_tiles + kStages * Sizes::kKBytes;
  const int thread = static_cast<int>(threadIdx.x), group = thread / 128, lane = thread % 32;
  if (thread == 0) {
    make_barrier(&q_full, 1);
    make_barrier(&q_empty, 2);
    for (int s = 0; s < kStages; ++s) {
      make_barrier(&k_full[s], 1);
      make_barrier(&k_empty[s], 2);
    }
    for (int s = 0; s < kVStages; ++s) {
      make_barrier(&v_full[s], 1);
      make_barrier(&v_empty[s], 2);
    }
    publish_barriers();
  }
  __syncthreads();
  const int items = query_items(p, tiles);

  if (group == 2) {
    registers_down<24>();
    if (thread % 128 != 0) return;
    Turn turn, v_turn, q_turn;
    for (int round = 0;; ++round) {
      const int item = item_of_round(round, items);
      if (item < 0) break;
      if (item >= items) continue;
      const HopperTile at = query_item(p, item, tiles);
      if (p.idle(at.tile.sequence)) continue;
      BlockWalk walk;
      bool more = walk.next(p.k_rows, at.tile.sequence, at.keys, kKeys);
      if (!more) continue;
      await_turn(&q_empty, q_turn.parity ^ 1);
      announce(&q_full, static_cast<uint32_t>(p.packing.tokens * p.group *
                                              (Sizes::kQkPanels + Sizes::kValuePanels) * 128));
      for (int c = 0; c < Sizes::kQkPanels; ++c)
        copy_box(q_tile + c * kRowPanel, &q_map, c * 64, at.kv_head * p.group, at.tile.row, &q_full);
      for (int c = 0; c < Sizes::kValuePanels; ++c)
        copy_box(dout_tile + c * kRowPanel, &dout_map, c * 64, at.kv_head * p.group, at.tile.row, &q_full);
      q_turn.advance<1>();
      for (; more; more = walk.next(p.k_rows, at.tile.sequence, at.keys, kKeys)) {
        const uint32_t k = k_tiles + turn.stage * Sizes::kKBytes, v = v_tiles + v_turn.stage * Sizes::kVBytes;
        await_turn(&k_empty[turn.stage], turn.parity ^ 1);
        announce(&k_full[turn.stage], Sizes::kKBytes);
        for (int c = 0; c < Sizes::kQkPanels; ++c)
          copy_box(k + c * kKeyPanel, &k_map, c * 64, at.kv_head, walk.row, &k_full[turn.stage]);
        await_turn(&v_empty[v_turn.stage], v_turn.parity ^ 1);
        announce(&v_full[v_turn.stage], Sizes::kVBytes);
        for (int c = 0; c < Sizes::kValuePanels; ++c)
          copy_box(v + c * kKeyPanel, &v_map, c * 64, at.kv_head, walk.row, &v_full[v_turn.stage]);
        turn.advance<kStages>();
        v_turn.advance<kVStages>();
      }
    }
    return;
  }

  registers_up<240>();
  const ScoreUnits<kExtra> units(p);
  const int warp_row = group * 64 + thread % 128 / 32 * 16, own_row = warp_row + lane / 4;
  Turn turn, v_turn, q_turn;
  for (int round = 0;; ++round) {
    const int item = item_of_round(round, items);
    if (item < 0) break;
    if (item >= items) continue;
    const HopperTile at = query_item(p, item, tiles);
    const RowTile& tile = at.tile;
    if (p.idle(tile.sequence)) continue;
    BlockWalk walk;
    bool more = walk.next(p.k_rows, tile.sequence, at.keys, kKeys);
    if (!more && p.in_place) continue;
    const int valid = tile.count * p.group, first_head = at.kv_head * p.group;
    // delta of the warp's 16 rows, a group of lanes per row; all loads are in flight together.
    constexpr int kLanes = kValue <= 64 ? 8 : kValue <= 128 ? 16 : 32, kAtOnce = 32 / kLanes;
    float parts[16 / kAtOnce];
#pragma unroll
    for (int i = 0; i < 16; i += kAtOnce) {
      const int r = warp_row + i + lane / kLanes, token = p.packing.token(r);
      float& part = parts[i / kAtOnce];
      part = 0.0f;
      if (r < valid && lane % kLanes * 8 < p.value_dim) {
        const int64_t from = static_cast<int64_t>(tile.row + token) * p.o_stride +
                             static_cast<int64_t>(first_head + r - token * p.group) * p.value_dim +
                             lane % kLanes * 8;
        const auto a = load<8>(static_cast<const T*>(p.o) + from),
                   b = load<8>(static_cast<const T*>(p.dout) + from);
#pragma unroll
        for (int e = 0; e < 8; ++e) part += a.v[e] * b.v[e];
      }
    }
    __syncwarp();  // row_delta of the last item has been read
#pragma unroll
    for (int i = 0; i < 16; i += kAtOnce) {
      float& part = parts[i / kAtOnce];
#pragma unroll
      for (int d = kLanes / 2; d > 0; d /= 2) part += __shfl_xor_sync(0xffffffffu, part, d);
      if (lane % kLanes == 0) row_delta[warp_row + i + lane / kLanes] = part;
    }
    __syncwarp();
    Span row_keys[2];
    float lse[2], delta[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = own_row + 8 * h, token = p.packing.token(r);
      row_keys[h] = Span{0, 0};
      lse[h] = 0.0f;
      delta[h] = row_delta[r];
      if (r < valid) {
        row_keys[h] = p.keys(tile.sequence, tile.position + token);
        const int head = first_head + r - token * p.group;
        lse[h] = p.lse[static_cast<int64_t>(head) * p.q_count + tile.row + token] * kLog2E;
        if (lane % 4 == 0)
          store_stats(p, at.kv_head, static_cast<int64_t>(tile.row) * p.group + r, lse[h], delta[h]);
        if (p.dq_before != nullptr && !p.in_place)
          prefetch_row(p.dq_before + static_cast<int64_t>(tile.row + token) * p.dq_stride +
                           static_cast<int64_t>(head) * p.head_dim,
                       p.head_dim);
      }
    }
    float dq[kQk / 2];
#pragma unroll
    for (float& x : dq) x = 0.0f;
    if (more) {
      await_turn(&q_full, q_turn.parity);
      q_turn.advance<1>();
      const uint32_t q = q_tile + static_cast<uint32_t>(group) * 8192,
                     dout = dout_tile + static_cast<uint32_t>(group) * 8192;
      float s[kKeys / 2], g[kKeys / 2];
      uint32_t ds[kKeys / 16][4];
      int before = -1;  // the stage whose keys the last MMA reads
      [[maybe_unused]] TiledProblem::DropoutRow dropout_rows[2];
      if (kExtra && p.threshold > 0) find_dropout_rows(p, at, own_row, valid, dropout_rows);
      for (; more; more = walk.next(p.k_rows, tile.sequence, at.keys, kKeys), turn.advance<kStages>(),
                   v_turn.advance<kVStages>()) {
        const int begin = walk.position, count = walk.count(kKeys);
        const uint32_t k = k_tiles + turn.stage * Sizes::kKBytes, v = v_tiles + v_turn.stage * Sizes::kVBytes;
        await_turn(&k_full[turn.stage], turn.parity);
        begin_products();
        rows_product<T, kQk>(s, q, kRowPanel, k, kKeyPanel);
        end_products();
        // The previous MMA completes first: its operand's registers are reused for dP.
        await_products<1>();
        pin(dq);
        if (before >= 0 && thread % 128 == 0) arrive(&k_empty[before]);
        before = turn.stage;
        await_turn(&v_full[v_turn.stage], v_turn.parity);
        begin_products();
        rows_product<T, kValue>(g, dout, kRowPanel, v, kKeyPanel);
        end_products();
        await_products<1>();
        pin(s);
        const bool masked = begin < at.all.begin || begin + kKeys > at.all.end || count < kKeys;
        const auto weigh = [&](auto sees) {
#pragma unroll
          for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float& x = s[j * 4 + i];
              float slope = 1.0f;
              if (units.capped) {
                x = tanh_fast(x * units.inner);
                slope = 1.0f - x * x;
              }
              const float weight = exp2_fast(fmaf(x, units.unit, -lse[i / 2])) * slope;
              x = sees(i / 2, j * 8 + i % 2) ? weight : 0.0f;
            }
        };
        if (masked) {
          int from[2], to[2];
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            from[h] = row_keys[h].begin - begin - lane % 4 * 2;
            to[h] = lesser(row_keys[h].end - begin, count) - lane % 4 * 2;
          }
          weigh([&](int h, int key) { return key >= from[h] && key < to[h]; });
        } else {
          weigh([](int, int) { return true; });
        }
        await_products<0>();
        pin(g);
        if (thread % 128 == 0) arrive(&v_empty[v_turn.stage]);
        if (kExtra && p.threshold > 0) {
          uint32_t kept[2];
          draw_kept<kKeys>(p, tile.sequence, begin, count, lane, dropout_rows, kept);
#pragma unroll
          for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              g[j * 4 + i] = (kept[i / 2] >> (2 * j + i % 2) & 1) != 0 ? g[j * 4 + i] * p.kept : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) s[j * 4 + i] *= g[j * 4 + i] - delta[i / 2];
        left_of<T>(s, ds);
        begin_products();
        add_columns_product<T>(dq, ds, k, kKeyPanel);
        end_products();
      }
      await_products<0>();
      pin(dq);
      if (thread % 128 == 0) {
        arrive(&k_empty[before]);
        arrive(&q_empty);
      }
    }
    const auto& result = reinterpret_cast<const float(&)[kQk / 8][4]>(dq);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = own_row + 8 * h, token = p.packing.token(r);
      const int64_t to = static_cast<int64_t>(tile.row + token) * p.dq_stride +
                         static_cast<int64_t>(first_head + r - token * p.group) * p.head_dim;
      if (p.in_place)
        add_wide_row(dq, h, p.scale, static_cast<float*>(p.dq) + to, p.head_dim,
                     r < valid && row_keys[h].begin < row_keys[h].end);
      else if (p.wide)
        store_wide_row(result, h, p.scale, p.dq_before != nullptr ? p.dq_before + to : nullptr, 1.0f,
                       static_cast<float*>(p.dq) + to, p.head_dim, r < valid);
      else
        store_row<T>(result, h, p.scale, static_cast<T*>(p.dq) + to, p.head_dim, r < valid);
    }
  }
#else
  __trap();
#endif
}

template <int kQk, int kValue, bool kExtra>
struct HopperDkv : HopperKeys<kQk, kValue, hopper_dkv_rows({kQk, kValue}, kExtra)> {};

template <class T, int kQk, int kValue, bool kExtra>
__global__ void __launch_bounds__(kBackwardThreads, 1)
    hopper_dkv(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap dout_map,
               const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
               const __grid_constant__ CUtensorMap stats_map, const __grid_constant__ TiledProblem p,
               int tiles) {
  await_previous();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Sizes = HopperDkv<kQk, kValue, kExtra>;
  constexpr int kRows = Sizes::kRows, kStages = Sizes::kStages;
  constexpr uint32_t kRowPanel = Sizes::kRowPanel, kKeyPanel = Sizes::kKeyPanel;
  __shared__ KeyExchange<Sizes> exchange;
  __shared__ Span query_spans[Sizes::kKeys];
  const KeyTiles<Sizes> shared(0);
  const int thread = static_cast<int>(threadIdx.x), group = thread / 128, lane = thread % 32;
  begin_key_tiles(p, shared, exchange, thread);

  if (group == 2) {
    registers_down<24>();
    if (thread % 128 == 0)
      stream_queries<BlockWalk>(p, shared, exchange, tiles * p.kv_span, q_map, dout_map, k_map, v_map,
                                stats_map);
    return;
  }

  registers_up<240>();
  const ScoreUnits<kExtra> units(p);
  const int own_key = group * 64 + thread % 128 / 32 * 16 + lane / 4;  // and own_key + 8
  Turn turn;
  for_each_item(p, exchange, [&](const HopperTile& at, bool seen) {
    float dk[kQk / 2], dv[kValue / 2];
#pragma unroll
    for (float& x : dk) x = 0.0f;
#pragma unroll
    for (float& x : dv) x = 0.0f;
    if (seen) {
      const KeyQueries queries(p, at.tile, own_key, query_spans + own_key, lane);
      const uint32_t k = shared.k + static_cast<uint32_t>(group) * 8192,
                     v = shared.v + static_cast<uint32_t>(group) * 8192;
      float s[kRows / 2], g[kRows / 2];
      uint32_t left[kRows / 16][4];
      [[maybe_unused]] int places[2];
      if (kExtra && p.threshold > 0) find_key_places(p, at.tile, own_key, places);
      [[maybe_unused]] uint32_t ds[kRows / 16][4];
      int before = -1;  // the stage that the last MMAs read
      KeyBlock block;
      // Blocks before and after those that see this warpgroup's keys: only the other one's are seen there.
      const Span seen_by = group_queries(p, at.tile, group * 64);
      const bool any = skip_blocks(exchange, turn, block, lane, [&](const KeyBlock& b) {
        return b.position < seen_by.end && b.position * p.group + b.rows > seen_by.begin * p.group;
      });
      if (any) {
        do {
          const uint32_t q = shared.q + turn.stage * Sizes::kQBytes,
                         dout = shared.dout + turn.stage * Sizes::kDoutBytes;
          await_turn(&exchange.full[turn.stage], turn.parity);
          block = load_block(exchange.blocks[turn.stage]);
          const RowStats stats = shared.stats_of(turn.stage, block.row, lane);
          begin_products();
          rows_product<T, kQk>(s, k, kKeyPanel, q, kRowPanel);
          end_products();
          // The previous MMAs complete first: their operands' registers are reused for dP.
          await_products<1>();
          pin(dk);
          pin(dv);
          if (before >= 0) release(&exchange.empty[before], lane);
          before = turn.stage;
          begin_products();
          rows_product<T, kValue>(g, v, kKeyPanel, dout, kRowPanel);
          end_products();
          await_products<1>();
          pin(s);
          // dS is computed from the rounded weights: registers for both would be too many. With long rows it
          // reuses the weights' own registers.
          if constexpr (kExtra) {
            weigh_with_extras<T>(p, queries, at.kv_head, places, block, units, stats, lane, s, left);
          } else {
            weigh_block<kExtra>(p, queries, block, units, stats, lane, s,
                                [&](int i, float weight, float) { s[i] = weight; });
            left_of<T>(s, left);
          }
          begin_products();
          add_columns_product<T>(dv, left, dout, kRowPanel);
          end_products();
          await_products<1>();
          pin(g);
          for_each_delta<kRows, false>(block, stats, lane, [&](int j, float2 delta) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              const int i = j * 4 + 2 * h;
              if constexpr (kExtra) {
                g[i] = score_gradient(p, s[i], g[i], delta.x);
                g[i + 1] = score_gradient(p, s[i + 1], g[i + 1], delta.y);
              } else {
                const float2 weight = pair_of<T>(left[j / 2][j % 2 * 2 + h]);
                g[i] = weight.x * (g[i] - delta.x);
                g[i + 1] = weight.y * (g[i + 1] - delta.y);
              }
            }
          });
          if constexpr (kRows > 64) {
            await_products<0>();
            pin(dv);
            left_of<T>(g, left);
            begin_products();
            add_columns_product<T>(dk, left, q, kRowPanel);
          } else {
            left_of<T>(g, ds);
            begin_products();
            add_columns_product<T>(dk, ds, q, kRowPanel);
          }
          end_products();
          turn.advance<kStages>();
        } while ((block.flags & KeyBlock::kLast) == 0 &&
                 block.position * p.group + block.rows < seen_by.end * p.group);
        await_products<0>();
        pin(dk);
        pin(dv);
        release(&exchange.empty[before], lane);
        if ((block.flags & KeyBlock::kLast) == 0)
          skip_blocks(exchange, turn, block, lane, [](const KeyBlock&) { return false; });
      }
    }
    release(&exchange.kv_empty, lane);
    store_dk<T>(p, at, own_key, dk);
    store_dv<T>(p, at, own_key, dv);
  });
#else
  __trap();
#endif
}

}  // namespace quintet::kernels::cuda
