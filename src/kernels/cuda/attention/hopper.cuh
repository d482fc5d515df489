// Shared by the Hopper kernels: assignment of tiles to blocks, barriers of a ring of stages, a row's result.
#pragma once

#include "kernels/cuda/attention/hopper_products.cuh"
#include "kernels/cuda/attention/problem.cuh"

namespace quintet::kernels::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

template <int kRegisters>
__device__ __forceinline__ void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Position in a ring of stages.
struct Turn {
  int stage = 0;
  uint32_t parity = 0;
  template <int kStages>
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Warpgroups alternate in issuing MMAs: named barriers from 1 on, each shared by the warpgroup that waits on
// it and the one before it.
__device__ __forceinline__ void order_wait(int group) {
  asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory");
}
__device__ __forceinline__ void order_next(int group) {
  asm volatile("bar.arrive %0, 256;" ::"r"(1 + group) : "memory");
}

// Items are sorted by descending cost and assigned in alternating direction, so that all blocks get equal
// work. Negative: no more items; at least `items`: none in this round.
__device__ __forceinline__ int item_of_round(int round, int items) {
  const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
  if (round * blocks >= items) return -1;
  return round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
}

// A query tile of the heads that share a KV head, and the keys seen by any and by all of its rows.
struct HopperTile {
  int kv_head;
  RowTile tile;
  Span keys, all;
};
__device__ __forceinline__ HopperTile query_item(const TiledProblem& p, int item, int tiles) {
  const int rank = item / p.kv_heads;
  HopperTile at{item % p.kv_heads,
                row_tile(p.q_rows, p.packing.tokens,
                         p.order != nullptr ? static_cast<int>(p.order[rank]) : tiles - 1 - rank),
                {},
                {}};
  const Span first = p.keys(at.tile.sequence, at.tile.position),
             last = p.keys(at.tile.sequence, at.tile.position + at.tile.count - 1);
  at.keys = {first.begin, last.end};
  at.all = {last.begin, first.end};
  return at;
}

// Brings the f32 row of an earlier hop into the L2 cache, to be read when the tile is done; a quad per row.
__device__ __forceinline__ void prefetch_row(const float* row, int width) {
  for (int column = static_cast<int>(threadIdx.x) % 4 * 32; column < width; column += 128)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(row + column));
}

// What the extras make of scores: units of log2 of a score, or of the tanh that a soft cap makes of it.
template <bool kExtra>
struct ScoreUnits {
  float unit, inner;
  bool capped;
  __device__ __forceinline__ explicit ScoreUnits(const TiledProblem& p)
      : unit((kExtra && p.soft_cap > 0 ? p.soft_cap : p.scale) * kLog2E),
        inner(kExtra && p.soft_cap > 0 ? p.scale / p.soft_cap : 0.0f),
        capped(kExtra && p.soft_cap > 0) {}
};

// Dropout of the keys [begin, begin + kKeys) for this lane's two rows: bit 2 * j + i is set where the weight
// in register 4 * j + 2 * h + i is kept.
template <int kKeys>
__device__ __forceinline__ void draw_kept(const TiledProblem& p, int sequence, int begin, int count, int lane,
                                          const TiledProblem::DropoutRow (&rows)[2], uint32_t (&bits)[2]) {
  static_assert(kKeys <= 128);
  bits[0] = bits[1] = 0;
#pragma unroll 1
  for (int j = 0; j < kKeys / 8; ++j) {
    const int column = j * 8 + lane % 4 * 2;
    if (column >= count) break;
    const int first = p.key_position(sequence, begin + column),
              second = column + 1 < count ? p.key_position(sequence, begin + column + 1) : first;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      Words<4> words = p.dropout_words(rows[h], first);
      uint32_t kept = p.keeps(words, first) ? 1 : 0;
      if (first >> 2 != second >> 2) words = p.dropout_words(rows[h], second);
      kept |= p.keeps(words, second) ? 2 : 0;
      bits[h] |= kept << (2 * j);
    }
  }
}
// The rows of draw_kept(): row r of the tile and the eighth after it.
__device__ __forceinline__ void find_dropout_rows(const TiledProblem& p, const HopperTile& at, int r,
                                                  int valid, TiledProblem::DropoutRow (&rows)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lesser(r + 8 * h, valid - 1), token = p.packing.token(row);
    rows[h] = p.dropout_row(at.tile.row + token, at.kv_head * p.group + row - token * p.group);
  }
}

// Writes a row of o and its lse. `level` is the row's maximum in units of log2, `sum` this lane's part of the
// sum; registers 4 * j + 2 * half of `out` belong to the row.
template <class T, bool kExtra, int kRegisters>
__device__ __forceinline__ void finish_row(const TiledProblem& p, const HopperTile& at, int r, int valid,
                                           int half, const float (&out)[kRegisters], float level, float sum) {
  const int token = p.packing.token(r), head = at.kv_head * p.group + r - token * p.group;
  const bool inside = r < valid;
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  RowResult result = row_result(p, inside, head, at.tile.row + token, level, sum);
  if (kExtra && p.threshold > 0) result.factor *= p.kept;
  const int64_t to =
      static_cast<int64_t>(at.tile.row + token) * p.o_stride + static_cast<int64_t>(head) * p.value_dim;
  const auto& tiles = reinterpret_cast<const float(&)[kRegisters / 4][4]>(out);
  const bool same = result.factor == 0.0f && result.share == 1.0f && p.o_before == p.o_out;
  if (p.wide)
    store_wide_row(tiles, half, result.factor, result.share != 0.0f ? p.o_before + to : nullptr, result.share,
                   static_cast<float*>(p.o_out) + to, p.value_dim, inside && !same);
  else
    store_row<T>(tiles, half, result.factor, static_cast<T*>(p.o_out) + to, p.value_dim, inside);
  if (inside && threadIdx.x % 4 == 0)
    p.lse_out[static_cast<int64_t>(head) * p.q_count + at.tile.row + token] = result.lse;
}

#endif

}  // namespace quintet::kernels::cuda
