// Forward on Hopper, with persistent blocks: one thread of a dedicated warpgroup prefetches Q, K and V tiles
// into shared memory; each of the other warpgroups has 64 query rows. While one computes its softmax the
// others' MMAs run, and within a warpgroup the scores of the next key block are computed alongside the matmul
// of the last weights with V. Rows past tokens * heads of a tile have undefined contents: no other row reads
// them.
//
// A hop of a ring merges its tile with the earlier result in shared memory, where there is room: the producer
// copies the earlier tile while scores are computed and stores the merged one while the next tile begins.
#pragma once

#include "kernels/cuda/attention/hopper.cuh"

namespace quintet::kernels::cuda {

template <int kQk, int kValue, bool kExtra>
struct HopperForward {
  static constexpr int kGroups = hopper_forward_rows({kQk, kValue}, kExtra) / 64;  // warpgroups with rows
  static constexpr int kThreads = 128 * (kGroups + 1);
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kKeys = kQk <= 192 ? 128 : kExtra ? 64 : 80, kStages = 2;
  static constexpr int kQkPanels = (kQk + 63) / 64, kValuePanels = (kValue + 63) / 64;
  static constexpr int kQBytes = kRows * kQkPanels * 128, kKBytes = kKeys * kQkPanels * 128,
                       kVBytes = kKeys * kValuePanels * 128;
  static constexpr int kBytes = kQBytes + kStages * (kKBytes + kVBytes) + 1024;
  // Whether the next tile is taken while the last MMA of a tile runs: it needs registers.
  static constexpr bool kAhead = kGroups == 2 && kQk <= 128 && !kExtra;
  // The tile of earlier results in f32; 0: no room for it.
  static constexpr int kWidePanels = kValue / 32, kWidePanel = kRows * 128;
  static constexpr int kWideBytes =
      kBytes + kWidePanels * kWidePanel <= (226 << 10) ? kWidePanels * kWidePanel : 0;
};

// Exponents of weights, in units of log2, that need no new scale.
inline constexpr float kHeadroom = 8.0f;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// The next tile, in shared memory: one warp looks it up while this one is computed, which takes several
// dependent loads and divisions.
template <int kRows>
struct NextTile {
  HopperTile at;  // kv_head negative: there is none
  Span keys[kRows];
  float earlier[kRows];
};
#endif

template <class T, int kQk, int kValue, bool kExtra>
__global__ void __launch_bounds__(HopperForward<kQk, kValue, kExtra>::kThreads, 1)
    hopper_forward(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
                   const __grid_constant__ CUtensorMap v_map, const __grid_constant__ CUtensorMap before_map,
                   const __grid_constant__ CUtensorMap out_map, const __grid_constant__ TiledProblem p,
                   int tiles) {
  await_previous();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Sizes = HopperForward<kQk, kValue, kExtra>;
  constexpr int kGroups = Sizes::kGroups, kRows = Sizes::kRows, kKeys = Sizes::kKeys,
                kStages = Sizes::kStages;
  constexpr uint32_t kQPanel = kRows * 128, kKeyPanel = kKeys * 128;
  __shared__ alignas(8) uint64_t q_full, q_empty, k_full[kStages], k_empty[kStages], v_full[kStages],
      v_empty[kStages], wide_full, wide_done, next_full, next_empty;
  __shared__ NextTile<kRows> next_tile;
  const uint32_t q_tile = (shared_address(tiled_memory) + 1023) / 1024 * 1024,
                 k_tiles = q_tile + Sizes::kQBytes, v_tiles = k_tiles + kStages * Sizes::kKBytes,
                 wide_tile = v_tiles + kStages * Sizes::kVBytes;
  // Whether a tile is merged in shared memory: not one of fewer tokens, whose box would reach into other
  // rows.
  const auto merges = [&](const RowTile& tile) {
    return Sizes::kWideBytes > 0 && p.wide && tile.count == p.packing.tokens;
  };
  const int thread = static_cast<int>(threadIdx.x), group = thread / 128, lane = thread % 32;
  if (thread == 0) {
    make_barrier(&q_full, 1);
    make_barrier(&q_empty, kGroups);
    make_barrier(&wide_full, 1);
    make_barrier(&wide_done, 4 * kGroups);  // a warp each
    make_barrier(&next_full, 32);
    make_barrier(&next_empty, 128 * kGroups);
    for (int s = 0; s < kStages; ++s) {
      make_barrier(&k_full[s], 1);
      make_barrier(&k_empty[s], kGroups);
      make_barrier(&v_full[s], 1);
      make_barrier(&v_empty[s], kGroups);
    }
    publish_barriers();
  }
  __syncthreads();
  const int items = query_items(p, tiles);

  if (group == kGroups) {
    registers_down<kGroups == 2 ? 40 : 32>();
    if (thread % 128 >= 64) finish_unseen<T, kKeys>(p, items, tiles, thread % 128 / 32 - 2, 2);
    if (thread % 128 / 32 == 1) {
      Turn turn;
      for (int round = 0;; ++round) {
        const int item = item_of_round(round, items);
        if (item >= items) continue;
        HopperTile at{-1, {}, {}, {}};
        if (item >= 0) {
          at = query_item(p, item, tiles);
          BlockWalk walk;
          if (p.idle(at.tile.sequence) || !walk.next(p.k_rows, at.tile.sequence, at.keys, kKeys)) continue;
        }
        await_turn(&next_empty, turn.parity ^ 1);
        if (lane == 0) next_tile.at = at;
        for (int r = lane; item >= 0 && r < kRows; r += 32) {
          const int token = p.packing.token(r), head = at.kv_head * p.group + r - token * p.group;
          const bool inside = r < at.tile.count * p.group;
          next_tile.keys[r] = inside ? p.keys(at.tile.sequence, at.tile.position + token) : Span{0, 0};
          next_tile.earlier[r] = earlier_lse(p, inside, head, at.tile.row + token);
        }
        arrive(&next_full);
        if (item < 0) return;
        turn.advance<1>();
      }
    }
    if (thread % 128 != 0) return;
    Turn turn, q_turn, wide_turn;
    int merged_head = -1, merged_row = 0;  // of the tile that is being merged
    const auto store_merged = [&] {
      if (merged_head < 0) return;
      await_turn(&wide_done, wide_turn.parity ^ 1);
      for (int c = 0; c < Sizes::kWidePanels; ++c)
        store_box(&out_map, wide_tile + c * Sizes::kWidePanel, c * 32, merged_head * p.group, merged_row);
      commit_stores();
    };
    const auto begin_merge = [&](const HopperTile& at) {
      store_merged();
      await_source_read();
      if (p.o_before != nullptr) {
        announce(&wide_full, static_cast<uint32_t>(p.packing.tokens * p.group * Sizes::kWidePanels * 128));
        for (int c = 0; c < Sizes::kWidePanels; ++c)
          copy_box(wide_tile + c * Sizes::kWidePanel, &before_map, c * 32, at.kv_head * p.group, at.tile.row,
                   &wide_full);
      } else {
        arrive(&wide_full);
      }
      merged_head = at.kv_head;
      merged_row = at.tile.row;
      wide_turn.advance<1>();
    };
    for (int round = 0;; ++round) {
      const int item = item_of_round(round, items);
      if (item < 0) break;
      if (item >= items) continue;
      const HopperTile at = query_item(p, item, tiles);
      if (p.idle(at.tile.sequence)) continue;
      BlockWalk walk;
      bool more = walk.next(p.k_rows, at.tile.sequence, at.keys, kKeys);
      if (!more) continue;  // no row sees a key
      await_turn(&q_empty, q_turn.parity ^ 1);
      announce(&q_full, static_cast<uint32_t>(p.packing.tokens * p.group * Sizes::kQkPanels * 128));
      for (int c = 0; c < Sizes::kQkPanels; ++c)
        copy_box(q_tile + c * kQPanel, &q_map, c * 64, at.kv_head * p.group, at.tile.row, &q_full);
      q_turn.advance<1>();
      // Blocks of keys before the earlier result is copied, while the consumers finish the last tile.
      int until_merge = merges(at.tile) ? kStages : -1;
      while (more) {
        const uint32_t k = k_tiles + turn.stage * Sizes::kKBytes, v = v_tiles + turn.stage * Sizes::kVBytes;
        await_turn(&k_empty[turn.stage], turn.parity ^ 1);
        announce(&k_full[turn.stage], Sizes::kKBytes);
        for (int c = 0; c < Sizes::kQkPanels; ++c)
          copy_box(k + c * kKeyPanel, &k_map, c * 64, at.kv_head, walk.row, &k_full[turn.stage]);
        await_turn(&v_empty[turn.stage], turn.parity ^ 1);
        announce(&v_full[turn.stage], Sizes::kVBytes);
        for (int c = 0; c < Sizes::kValuePanels; ++c)
          copy_box(v + c * kKeyPanel, &v_map, c * 64, at.kv_head, walk.row, &v_full[turn.stage]);
        turn.advance<kStages>();
        more = walk.next(p.k_rows, at.tile.sequence, at.keys, kKeys);
        if (until_merge > 0 && (--until_merge == 0 || !more)) {
          begin_merge(at);
          until_merge = -1;
        }
      }
    }
    if constexpr (Sizes::kWideBytes > 0) {
      store_merged();
      await_stores();
    }
    return;
  }

  registers_up<kGroups == 2 ? 232 : 160>();
  const ScoreUnits<kExtra> units(p);
  const float unit = units.unit;
  const int own_row = group * 64 + thread % 128 / 32 * 16 + lane / 4;  // and own_row + 8
  // A tile, and what this lane knows of its two rows.
  struct Rows {
    HopperTile at;
    int valid;
    bool merging;
    Span keys[2];
    float earlier[2], top[2], sum[2];
  };
  Turn k_turn, v_turn, q_turn, wide_turn, next_turn;
  BlockWalk walk;
  const auto finish = [&](const Rows& t, const float(&out)[kValue / 2]) {
    if (t.merging) await_turn(&wide_full, wide_turn.parity);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      finish_row<T, kExtra, kRows>(p, t.at, own_row + 8 * h, t.valid, h, out, t.top[h] * unit, t.sum[h],
                                   t.earlier[h], t.merging ? wide_tile : 0);
    if (t.merging) {
      wide_turn.advance<1>();
      publish_shared();
      __syncwarp();
      if (lane == 0) arrive(&wide_done);
    }
  };
  // The next tile with a row that sees a key, with the walk at its first block; false: none.
  const auto take_tile = [&](Rows& t) {
    await_turn(&next_full, next_turn.parity);
    next_turn.advance<1>();
    t.at = next_tile.at;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      t.keys[h] = next_tile.keys[own_row + 8 * h];
      t.earlier[h] = next_tile.earlier[own_row + 8 * h];
      t.top[h] = -INFINITY;
      t.sum[h] = 0.0f;
    }
    arrive(&next_empty);
    if (t.at.kv_head < 0) return false;
    const RowTile& tile = t.at.tile;
    walk = {};
    walk.next(p.k_rows, tile.sequence, t.at.keys, kKeys);
    t.valid = tile.count * p.group;
    t.merging = merges(tile);
    if (p.o_before != nullptr && !t.merging)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int r = own_row + 8 * h, token = p.packing.token(r),
                  head = t.at.kv_head * p.group + r - token * p.group;
        if (r < t.valid)
          prefetch_row(p.o_before + static_cast<int64_t>(tile.row + token) * p.o_stride +
                           static_cast<int64_t>(head) * p.value_dim,
                       p.value_dim);
      }
    return true;
  };
  float out[kValue / 2], s[kKeys / 2], shrink[2];
  bool rescale;
  uint32_t weights[kKeys / 16][4];
  [[maybe_unused]] TiledProblem::DropoutRow dropout_rows[2];
  const uint32_t q = q_tile + static_cast<uint32_t>(group) * 8192;
  // Masks the scores of the walk's block in s and turns them into weights relative to top. A warp moves top,
  // and rescales what is summed so far, only where a weight would exceed 2^kHeadroom.
  const auto weigh = [&](Rows& t) {
    const int begin = walk.position, count = walk.count(kKeys);
    const bool masked = begin < t.at.all.begin || begin + kKeys > t.at.all.end || count < kKeys;
    if (units.capped) {
#pragma unroll
      for (int i = 0; i < kKeys / 2; ++i) s[i] = tanh_fast(s[i] * units.inner);
    }
    float best[2];
    bool higher = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (masked) {
        const int from = t.keys[h].begin - begin - lane % 4 * 2,
                  to = lesser(t.keys[h].end - begin, count) - lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
          for (int i = 0; i < 2; ++i)
            if (j * 8 + i < from || j * 8 + i >= to) s[j * 4 + 2 * h + i] = -INFINITY;
      }
      best[h] = t.top[h];
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
        best[h] = fmaxf(best[h], fmaxf(s[j * 4 + 2 * h], s[j * 4 + 2 * h + 1]));
      best[h] = fmaxf(best[h], __shfl_xor_sync(0xffffffffu, best[h], 1));
      best[h] = fmaxf(best[h], __shfl_xor_sync(0xffffffffu, best[h], 2));
      higher |= (best[h] - t.top[h]) * unit > kHeadroom;
    }
    rescale = __any_sync(0xffffffffu, higher);
    if (rescale) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        shrink[h] = best[h] == -INFINITY ? 1.0f : exp2_fast((t.top[h] - best[h]) * unit);
        t.sum[h] *= shrink[h];
        t.top[h] = best[h];
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float base = t.top[h] == -INFINITY ? 0.0f : t.top[h] * unit;
      float total = 0.0f;
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const float weight = exp2_fast(fmaf(s[j * 4 + 2 * h + i], unit, -base));
          s[j * 4 + 2 * h + i] = weight;
          total += weight;
        }
      t.sum[h] += total;
    }
    if (kExtra && p.threshold > 0) {
      uint32_t kept[2];
      draw_kept<kKeys>(p, t.at.tile.sequence, begin, count, lane, dropout_rows, kept);
#pragma unroll
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if ((kept[i / 2] >> (2 * j + i % 2) & 1) == 0) s[j * 4 + i] = 0.0f;
    }
  };
  const auto await_keys = [&] { await_turn(&k_full[k_turn.stage], k_turn.parity); };
  const auto await_queries = [&] {
    await_turn(&q_full, q_turn.parity);
    q_turn.advance<1>();
  };
  const auto multiply_keys = [&] {
    begin_products();
    rows_product<T, kQk>(s, q, kQPanel, k_tiles + k_turn.stage * Sizes::kKBytes, kKeyPanel);
    end_products();
  };
  const auto multiply_values = [&] {
    await_turn(&v_full[v_turn.stage], v_turn.parity);
    begin_products();
    add_columns_product<T>(out, weights, v_tiles + v_turn.stage * Sizes::kVBytes, kKeyPanel);
    end_products();
  };
  const auto release_keys = [&] {
    if (thread % 128 == 0) arrive(&k_empty[k_turn.stage]);
    k_turn.advance<kStages>();
  };
  const auto release_values = [&] {
    if (thread % 128 == 0) arrive(&v_empty[v_turn.stage]);
    v_turn.advance<kStages>();
  };
  // The weights of the next block, while the last ones are multiplied with their values.
  const auto next_block = [&](Rows& t) {
    await_keys();
    order_wait(group);
    multiply_keys();
    multiply_values();
    order_next((group + 1) % kGroups);
    await_products<1>();
    pin(s);
    release_keys();
    weigh(t);
    await_products<0>();
    pin(out);
    release_values();
    left_of<T>(s, weights);
  };
  const auto first_block = [&](Rows& t) {
    if (kExtra && p.threshold > 0) find_dropout_rows(p, t.at, own_row, t.valid, dropout_rows);
    await_queries();
    await_keys();
    multiply_keys();
    await_products<0>();
    pin(s);
    release_keys();
    weigh(t);
    left_of<T>(s, weights);
  };
  if (group == kGroups - 1) order_next(0);  // the first group goes first
  Rows now;
  bool more_tiles = take_tile(now);
  if (more_tiles) first_block(now);
  while (more_tiles) {
#pragma unroll
    for (float& x : out) x = 0.0f;
    while (walk.next(p.k_rows, now.at.tile.sequence, now.at.keys, kKeys)) {
      next_block(now);
      if (rescale) {
#pragma unroll
        for (int j = 0; j < kValue / 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) out[j * 4 + i] *= shrink[i / 2];
      }
    }
    if (thread % 128 == 0) arrive(&q_empty);
    multiply_values();
    [[maybe_unused]] Rows next;
    if constexpr (Sizes::kAhead) more_tiles = take_tile(next);
    await_products<0>();
    pin(out);
    release_values();
    finish(now, out);
    if constexpr (Sizes::kAhead)
      now = next;
    else
      more_tiles = take_tile(now);
    if (more_tiles) first_block(now);
  }
#else
  __trap();  // hopper_blocks() is 0 in such builds
#endif
}

}  // namespace quintet::kernels::cuda
