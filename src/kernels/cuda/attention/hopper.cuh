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

// Query tiles times KV heads that need work.
__device__ __forceinline__ int query_items(const TiledProblem& p, int tiles) {
  return (p.visible != nullptr ? *p.visible : tiles) * p.kv_heads;
}

// Shared memory that this thread has written may be read by copies and MMAs after the next barrier.
__device__ __forceinline__ void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// A box of a stack of matrices to global memory; elements outside are not written.
__device__ __forceinline__ void store_box(const CUtensorMap* map, uint32_t from, int inner, int row,
                                          int matrix) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];" ::"l"(map),
               "r"(inner), "r"(row), "r"(matrix), "r"(from)
               : "memory");
}
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until the source of every committed store of this thread has been read.
__device__ __forceinline__ void await_source_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ __forceinline__ void await_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

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

// Prefetches the f32 row of an earlier hop into the L2 cache; it is read when the tile is done. Four lanes
// share a row.
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
// The rows of draw_kept(): rows r and r + 8 of the tile.
__device__ __forceinline__ void find_dropout_rows(const TiledProblem& p, const HopperTile& at, int r,
                                                  int valid, TiledProblem::DropoutRow (&rows)[2]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lesser(r + 8 * h, valid - 1), token = p.packing.token(row);
    rows[h] = p.dropout_row(at.tile.row + token, at.kv_head * p.group + row - token * p.group);
  }
}

// Merges half the accumulators with row r of a tile of kRows earlier results in f32, in place: panels of 32
// columns, as the bulk tensor copies of describe_wide() swizzle them.
template <int kRows, int kRegisters>
__device__ __forceinline__ void merge_wide_row(const float (&out)[kRegisters], int half, float factor,
                                               float share, uint32_t tile, int r) {
  const int quarter = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int j = 0; j < kRegisters / 4; ++j) {
    const uint32_t chunk = static_cast<uint32_t>((j % 4 * 2 + quarter / 2) ^ (r & 7)),
                   at = tile + static_cast<uint32_t>(j / 4 * kRows + r) * 128 + chunk * 16 +
                        static_cast<uint32_t>(quarter % 2 * 8);
    float x = factor == 0.0f ? 0.0f : out[j * 4 + 2 * half] * factor,
          y = factor == 0.0f ? 0.0f : out[j * 4 + 2 * half + 1] * factor;
    if (share != 0.0f) {
      float2 old;
      asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(old.x), "=f"(old.y) : "r"(at) : "memory");
      x = fmaf(old.x, share, x);
      y = fmaf(old.y, share, y);
    }
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(x), "f"(y) : "memory");
  }
}

// Adds half the accumulators, times `factor`, to an f32 row in global memory, without waiting for it. No
// other thread adds to the same elements, so the bits are those of store_wide_row().
template <int kRegisters>
__device__ __forceinline__ void add_wide_row(const float (&acc)[kRegisters], int half, float factor,
                                             float* to, int width, bool inside) {
  const int quarter = static_cast<int>(threadIdx.x) % 4, odd = quarter % 2;
#pragma unroll
  for (int j = 0; j < kRegisters / 4; j += 2) {
    // Even lanes get four columns of group j of eight columns, odd ones of the next group.
    const float2 low{acc[j * 4 + 2 * half] * factor, acc[j * 4 + 2 * half + 1] * factor},
        high{acc[j * 4 + 4 + 2 * half] * factor, acc[j * 4 + 4 + 2 * half + 1] * factor};
    const float x = __shfl_xor_sync(0xffffffffu, odd ? low.x : high.x, 1),
                y = __shfl_xor_sync(0xffffffffu, odd ? low.y : high.y, 1);
    const int column = (j + odd) * 8 + (quarter - odd) * 2;
    if (inside && column < width)
      asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to + column), "f"(odd ? x : low.x),
                   "f"(odd ? y : low.y), "f"(odd ? high.x : x), "f"(odd ? high.y : y)
                   : "memory");
  }
}

// Writes a row of o, or merges it with the tile of earlier results `wide_tile` (0: none), and writes its lse.
// `level` is the row's maximum in units of log2, `sum` this lane's part of the sum, `earlier` the lse of
// earlier hops; registers 4 * j + 2 * half of `out` belong to the row.
template <class T, bool kExtra, int kRows, int kRegisters>
__device__ __forceinline__ void finish_row(const TiledProblem& p, const HopperTile& at, int r, int valid,
                                           int half, const float (&out)[kRegisters], float level, float sum,
                                           float earlier, uint32_t wide_tile) {
  const int token = p.packing.token(r), head = at.kv_head * p.group + r - token * p.group;
  const bool inside = r < valid;
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  RowResult result = row_result(p, inside, head, earlier, level, sum);
  if (kExtra && p.threshold > 0) result.factor *= p.kept;
  const int64_t to =
      static_cast<int64_t>(at.tile.row + token) * p.o_stride + static_cast<int64_t>(head) * p.value_dim;
  const auto& tiles = reinterpret_cast<const float(&)[kRegisters / 4][4]>(out);
  const bool same = result.factor == 0.0f && result.share == 1.0f && p.o_before == p.o_out;
  if (wide_tile != 0)
    merge_wide_row<kRows>(out, half, result.factor, result.share, wide_tile, r);
  else if (p.wide)
    store_wide_row(tiles, half, result.factor, result.share != 0.0f ? p.o_before + to : nullptr, result.share,
                   static_cast<float*>(p.o_out) + to, p.value_dim, inside && !same);
  else
    store_row<T>(tiles, half, result.factor, static_cast<T*>(p.o_out) + to, p.value_dim, inside);
  if (inside && threadIdx.x % 4 == 0)
    p.lse_out[static_cast<int64_t>(head) * p.q_count + at.tile.row + token] = result.lse;
}

// Writes the rows of tiles in which no row sees a key: those from number `seen_items` on, or where documents
// are not sorted the ones found among all. For warps that have nothing else to do: number `warp` of `warps`.
template <class T, int kKeys>
__device__ __forceinline__ void finish_unseen(const TiledProblem& p, int seen_items, int tiles, int warp,
                                              int warps) {
  if (p.in_place || (p.documents == nullptr && p.q_rows.ranks == 1)) return;
  const int items = tiles * p.kv_heads, lane = static_cast<int>(threadIdx.x) % 32;
  for (int item = (p.visible != nullptr ? seen_items : 0) + static_cast<int>(blockIdx.x); item < items;
       item += static_cast<int>(gridDim.x)) {
    const HopperTile at = query_item(p, item, tiles);
    BlockWalk walk;
    if (p.idle(at.tile.sequence) || walk.next(p.k_rows, at.tile.sequence, at.keys, kKeys)) continue;
    for (int r = warp; r < at.tile.count * p.group; r += warps) {
      const int token = r / p.group, head = at.kv_head * p.group + r % p.group, row = at.tile.row + token;
      const RowResult result = row_result(p, true, head, earlier_lse(p, true, head, row), -INFINITY, 0.0f);
      const int64_t to = static_cast<int64_t>(row) * p.o_stride + static_cast<int64_t>(head) * p.value_dim;
      for (int column = lane; column < p.value_dim; column += 32)
        if (p.wide)
          static_cast<float*>(p.o_out)[to + column] =
              result.share != 0.0f ? p.o_before[to + column] * result.share : 0.0f;
        else
          static_cast<T*>(p.o_out)[to + column] = T{};
      if (lane == 0) p.lse_out[static_cast<int64_t>(head) * p.q_count + row] = result.lse;
    }
  }
}

#endif

}  // namespace quintet::kernels::cuda
