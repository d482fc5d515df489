// dk and dv on Hopper for long heads, whose sums do not fit the registers of one warpgroup together: one
// warpgroup computes S and sums dv, the other computes dP and sums dk, for the same 64 keys. The first hands
// its weights to the second through shared memory.
#pragma once

#include "kernels/cuda/attention/hopper_keys.cuh"

namespace quintet::kernels::cuda {

template <int kQk, int kValue>
struct HopperPair : HopperKeys<kQk, kValue, hopper_dkv_rows({kQk, kValue}, false)> {
  using Keys = HopperKeys<kQk, kValue, hopper_dkv_rows({kQk, kValue}, false)>;
  // Weights of a block in 16 bits, in the order of registers: [vectors of 16 bytes, threads].
  static constexpr int kWeightBytes = Keys::kKeys * Keys::kRows * 2;
  static constexpr int kExtraBytes = Keys::kStages * kWeightBytes, kBytes = Keys::kBytes + kExtraBytes;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Named barriers of a stage of weights, from 1 on: they have been written, they have been read.
__device__ __forceinline__ void weights_wait(int stage, bool written) {
  asm volatile("bar.sync %0, 256;" ::"r"(1 + 2 * stage + (written ? 0 : 1)) : "memory");
}
__device__ __forceinline__ void weights_arrive(int stage, bool written) {
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + 2 * stage + (written ? 0 : 1)) : "memory");
}
template <int kSteps>
__device__ __forceinline__ void put_weights(uint32_t to, int thread, const uint32_t (&words)[kSteps][4]) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    asm volatile(
        "st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to + static_cast<uint32_t>(k * 128 + thread) * 16),
        "r"(words[k][0]), "r"(words[k][1]), "r"(words[k][2]), "r"(words[k][3])
        : "memory");
}
template <int kSteps>
__device__ __forceinline__ void get_weights(uint32_t from, int thread, uint32_t (&words)[kSteps][4]) {
#pragma unroll
  for (int k = 0; k < kSteps; ++k)
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[k][0]), "=r"(words[k][1]), "=r"(words[k][2]), "=r"(words[k][3])
                 : "r"(from + static_cast<uint32_t>(k * 128 + thread) * 16)
                 : "memory");
}

#endif

template <class T, int kQk, int kValue, bool kExtra>
__global__ void __launch_bounds__(kBackwardThreads, 1)
    hopper_pair(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap dout_map,
                const __grid_constant__ CUtensorMap k_map, const __grid_constant__ CUtensorMap v_map,
                const __grid_constant__ CUtensorMap stats_map, const __grid_constant__ TiledProblem p,
                int tiles) {
  await_previous();
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Sizes = HopperPair<kQk, kValue>;
  using Keys = typename Sizes::Keys;
  constexpr int kRows = Sizes::kRows, kStages = Sizes::kStages;
  constexpr uint32_t kRowPanel = Sizes::kRowPanel, kKeyPanel = Sizes::kKeyPanel;
  static_assert(Sizes::kKeys == 64 && kStages == 2);
  __shared__ KeyExchange<Keys> exchange;
  __shared__ Span query_spans[Sizes::kKeys];
  const KeyTiles<Keys> shared(Sizes::kExtraBytes);
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
  const int own_key = thread % 128 / 32 * 16 + lane / 4;  // and own_key + 8
  Turn turn;                                              // of the stages of queries and of the weights
  if (group == 0) {
    const ScoreUnits<kExtra> units(p);
    for_each_item(p, exchange, [&](const HopperTile& at, bool seen) {
      float dv[kValue / 2];
#pragma unroll
      for (float& x : dv) x = 0.0f;
      if (seen) {
        const KeyQueries queries(p, at.tile, own_key, query_spans + own_key, lane);
        [[maybe_unused]] int places[2];
        if (kExtra && p.threshold > 0) find_key_places(p, at.tile, own_key, places);
        float s[kRows / 2];
        uint32_t left[kRows / 16][4];
        int before = -1;  // the stage that the last MMAs read
        KeyBlock block;
        do {
          await_turn(&exchange.full[turn.stage], turn.parity);
          block = load_block(exchange.blocks[turn.stage]);
          const RowStats stats = shared.stats_of(turn.stage, block.row, lane);
          begin_products();
          rows_product<T, kQk>(s, shared.k, kKeyPanel, shared.q + turn.stage * Sizes::kQBytes, kRowPanel);
          end_products();
          await_products<0>();
          pin(dv);
          pin(s);
          if (before >= 0) release(&exchange.empty[before], lane);
          before = turn.stage;
          [[maybe_unused]] uint32_t handed[kRows / 16][4];
          if constexpr (kExtra) {
            weigh_with_extras<T>(p, queries, at.kv_head, places, block, units, stats, lane, s, left);
            left_of<T>(s, handed);
          } else {
            weigh_block<kExtra>(p, queries, block, units, stats, lane, s,
                                [&](int i, float weight, float) { s[i] = weight; });
            left_of<T>(s, left);
          }
          weights_wait(turn.stage, false);
          put_weights(shared.extra + turn.stage * Sizes::kWeightBytes, thread, kExtra ? handed : left);
          weights_arrive(turn.stage, true);
          begin_products();
          add_columns_product<T>(dv, left, shared.dout + turn.stage * Sizes::kDoutBytes, kRowPanel);
          end_products();
          turn.advance<kStages>();
        } while ((block.flags & KeyBlock::kLast) == 0);
        await_products<0>();
        pin(dv);
        release(&exchange.empty[before], lane);
      }
      release(&exchange.kv_empty, lane);
      store_dv<T>(p, at, own_key, dv);
    });
    // The barriers that the other warpgroup has arrived at last.
    for (int stage = 0; stage < kStages; ++stage) weights_wait(stage, false);
  } else {
    for (int stage = 0; stage < kStages; ++stage) weights_arrive(stage, false);
    for_each_item(p, exchange, [&](const HopperTile& at, bool seen) {
      float dk[kQk / 2];
#pragma unroll
      for (float& x : dk) x = 0.0f;
      if (seen) {
        float g[kRows / 2];
        uint32_t weights[kRows / 16][4], ds[kRows / 16][4];
        int before = -1;
        KeyBlock block;
        do {
          await_turn(&exchange.full[turn.stage], turn.parity);
          block = load_block(exchange.blocks[turn.stage]);
          const RowStats stats = shared.stats_of(turn.stage, block.row, lane);
          begin_products();
          rows_product<T, kValue>(g, shared.v, kKeyPanel, shared.dout + turn.stage * Sizes::kDoutBytes,
                                  kRowPanel);
          end_products();
          await_products<0>();
          pin(dk);
          pin(g);
          if (before >= 0) release(&exchange.empty[before], lane);
          before = turn.stage;
          weights_wait(turn.stage, true);
          get_weights(shared.extra + turn.stage * Sizes::kWeightBytes, thread - 128, weights);
          weights_arrive(turn.stage, false);
          for_each_delta<kRows, false>(block, stats, lane, [&](int j, float2 delta) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              const int i = j * 4 + 2 * h;
              const float2 weight = pair_of<T>(weights[j / 2][j % 2 * 2 + h]);
              if constexpr (kExtra) {
                g[i] = score_gradient(p, weight.x, g[i], delta.x);
                g[i + 1] = score_gradient(p, weight.y, g[i + 1], delta.y);
              } else {
                g[i] = weight.x * (g[i] - delta.x);
                g[i + 1] = weight.y * (g[i + 1] - delta.y);
              }
            }
          });
          left_of<T>(g, ds);
          begin_products();
          add_columns_product<T>(dk, ds, shared.q + turn.stage * Sizes::kQBytes, kRowPanel);
          end_products();
          turn.advance<kStages>();
        } while ((block.flags & KeyBlock::kLast) == 0);
        await_products<0>();
        pin(dk);
        release(&exchange.empty[before], lane);
      }
      release(&exchange.kv_empty, lane);
      store_dk<T>(p, at, own_key, dk);
    });
  }
#else
  __trap();
#endif
}

}  // namespace quintet::kernels::cuda
