// Forward: a block has kRows query rows (tokens of the heads that share a KV head) and walks the keys of
// their intervals with an online softmax. Each warp has 16 * kRowTiles of the rows and skips the key blocks
// that none of them sees.
#pragma once

#include "kernels/cuda/attention/problem.cuh"

namespace quintet::kernels::cuda {

template <int kQk, int kValue>
struct ForwardTiles {
  static constexpr int kRows = forward_rows({kQk, kValue}), kRowTiles = kRows / (16 * kWarps);
  static constexpr int kKeys = kQk > 128 ? 32 : 64;
  static constexpr int kBlocks = kQk <= 64 ? 3 : 2;  // per multiprocessor
  static constexpr int kBytes = (kRows * kQk + 2 * kKeys * (kQk + kValue)) * 2 + kRows * 8;
};

// kExtra: soft caps and dropout.
template <class T, int kQk, int kValue, bool kExtra>
__global__ void __launch_bounds__(kTiledThreads, ForwardTiles<kQk, kValue>::kBlocks)
    tiled_forward(const __grid_constant__ TiledProblem p) {
  await_previous();
  using Tiles = ForwardTiles<kQk, kValue>;
  constexpr int kRowTiles = Tiles::kRowTiles, kKeys = Tiles::kKeys, kRows = Tiles::kRows;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int shared_heads = p.kv_heads * p.packing.parts;
  const int last = static_cast<int>(gridDim.x) / shared_heads - 1,
            rank = static_cast<int>(blockIdx.x) / shared_heads;
  const int which = static_cast<int>(blockIdx.x) % shared_heads, kv_head = which / p.packing.parts;
  const int first_head = kv_head * p.group + which % p.packing.parts * p.packing.heads;
  if (p.visible != nullptr && rank >= *p.visible) return;
  const RowTile tile = row_tile(p.q_rows, p.packing.tokens,
                                p.order != nullptr ? static_cast<int>(p.order[rank]) : last - rank);
  if (p.idle(tile.sequence)) return;
  const int valid = tile.count * p.packing.heads;

  const uint32_t q_tile = shared_address(tiled_memory), k_tiles = q_tile + kRows * kQk * 2,
                 v_tiles = k_tiles + 2 * kKeys * kQk * 2;
  const T* const q = static_cast<const T*>(p.q) + static_cast<int64_t>(tile.row) * p.q_stride +
                     static_cast<int64_t>(first_head) * p.head_dim;
  load_rows<kQk, kRows, T>(q_tile, valid, p.head_dim, [&](int r) {
    const int token = p.packing.token(r);
    return q + token * p.q_stride + (r - token * p.packing.heads) * p.head_dim;
  });
  const T *const keys = static_cast<const T*>(p.k) + static_cast<int64_t>(kv_head) * p.head_dim,
                 *const values = static_cast<const T*>(p.v) + static_cast<int64_t>(kv_head) * p.value_dim;
  const auto load_block = [&](const BlockWalk& at, int stage) {
    const T *const k = keys + at.row * p.k_stride, *const v = values + at.row * p.v_stride;
    load_strided<kQk, kKeys>(k_tiles + stage * kKeys * kQk * 2, at.count(kKeys), p.head_dim, k, p.k_stride);
    load_strided<kValue, kKeys>(v_tiles + stage * kKeys * kValue * 2, at.count(kKeys), p.value_dim, v,
                                p.v_stride);
  };
  const Span tile_keys{p.keys(tile.sequence, tile.position).begin,
                       p.keys(tile.sequence, tile.position + tile.count - 1).end};
  BlockWalk walk;
  bool more = walk.next(p.k_rows, tile.sequence, tile_keys, kKeys);
  if (more) load_block(walk, 0);
  end_copies();

  // The keys that each row sees, and those that any and that all of the warp's rows see.
  const int warp_row = warp * 16 * kRowTiles;
  Span* const row_keys =
      reinterpret_cast<Span*>(tiled_memory + (kRows * kQk + 2 * kKeys * (kQk + kValue)) * 2);
  if (thread < kRows)
    row_keys[thread] =
        thread < valid ? p.keys(tile.sequence, tile.position + p.packing.token(thread)) : Span{0, 0};
  Span some{0, 0}, all{0, 0};
  if (warp_row < valid) {
    const Span first = p.keys(tile.sequence, tile.position + p.packing.token(warp_row)),
               end = p.keys(tile.sequence,
                            tile.position + p.packing.token(lesser(warp_row + 16 * kRowTiles, valid) - 1));
    some = {first.begin, end.end};
    all = {end.begin, first.end};
  }

  const float unit = kExtra && p.soft_cap > 0 ? kLog2E : p.scale * kLog2E;
  float out[kRowTiles][kValue / 8][4], top[kRowTiles][2], sum[kRowTiles][2];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    top[m][0] = top[m][1] = -INFINITY;
    sum[m][0] = sum[m][1] = 0.0f;
#pragma unroll
    for (auto& o : out[m]) o[0] = o[1] = o[2] = o[3] = 0.0f;
  }

  for (int stage = 0; more; stage ^= 1) {
    const int begin = walk.position, count = walk.count(kKeys);
    more = walk.next(p.k_rows, tile.sequence, tile_keys, kKeys);
    await_copies<0>();
    __syncthreads();  // the block has arrived; the other stage is no longer read
    if (more) load_block(walk, stage ^ 1);
    end_copies();
    if (begin >= some.end || begin + count <= some.begin) continue;

    float s[kRowTiles][kKeys / 8][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (auto& x : s[m]) x[0] = x[1] = x[2] = x[3] = 0.0f;
    {
      const auto left = left_operand<kQk>(q_tile, warp_row, lane);
      const auto right = right_operand<kQk>(k_tiles + stage * kKeys * kQk * 2, lane);
#pragma unroll
      for (int c = 0; c < kQk; c += 16) {
        uint32_t a[kRowTiles][4];
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) load_matrices(a[m], left.at(m * 16, c));
#pragma unroll
        for (int n = 0; n < kKeys; n += 16) {
          uint32_t b[4];
          load_matrices(b, right.at(n, c));
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            multiply_add<T>(s[m][n / 8], a[m], b[0], b[1]);
            multiply_add<T>(s[m][n / 8 + 1], a[m], b[2], b[3]);
          }
        }
      }
    }
    if (kExtra && p.soft_cap > 0) {
      const float inner = p.scale / p.soft_cap;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (auto& x : s[m])
#pragma unroll
          for (float& y : x) y = p.soft_cap * tanh_fast(y * inner);
    }
    if (begin < all.begin || begin + kKeys > all.end || count < kKeys) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const Span own = row_keys[warp_row + m * 16 + h * 8 + lane / 4];
          const int from = own.begin - begin - lane % 4 * 2,
                    to = lesser(own.end - begin, count) - lane % 4 * 2;
#pragma unroll
          for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i)
              if (j * 8 + i < from || j * 8 + i >= to) s[m][j][2 * h + i] = -INFINITY;
        }
    }
    // Weights relative to the new maxima. A maximum of -INFINITY: the row has seen no key yet.
    float shrink[kRowTiles][2];
    bool moved = false;
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float best = top[m][h];
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) best = fmaxf(best, fmaxf(s[m][j][2 * h], s[m][j][2 * h + 1]));
        best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
        best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
        const float base = best == -INFINITY ? 0.0f : best * unit;
        shrink[m][h] = exp2_fast(top[m][h] * unit - base);
        moved = moved || best != top[m][h];
        top[m][h] = best;
        float total = 0.0f;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const float weight = exp2_fast(s[m][j][2 * h + i] * unit - base);
            s[m][j][2 * h + i] = weight;
            total += weight;
          }
        sum[m][h] = sum[m][h] * shrink[m][h] + total;
      }
    if (__any_sync(0xffffffffu, moved)) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (auto& o : out[m]) {
          o[0] *= shrink[m][0];
          o[1] *= shrink[m][0];
          o[2] *= shrink[m][1];
          o[3] *= shrink[m][1];
        }
    }
    if (kExtra && p.threshold > 0) {
#pragma unroll 1
      for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = j * 8 + lane % 4 * 2 + i;
          const int place = column < count ? p.key_position(tile.sequence, begin + column) : 0;
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
              const int r = warp_row + m * 16 + h * 8 + lane / 4, token = p.packing.token(r);
              float factor = 0.0f;
              if (r < valid && column < count)
                factor = p.keep(tile.row + token, first_head + r - token * p.packing.heads, place);
#pragma unroll
              for (int at = 0; at < kKeys / 8; ++at)
                if (at == j) s[m][at][2 * h + i] *= factor;
            }
        }
    }
    const auto right = right_transposed<kValue>(v_tiles + stage * kKeys * kValue * 2, lane);
#pragma unroll
    for (int n = 0; n < kKeys; n += 16) {
      uint32_t a[kRowTiles][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        const auto &low = s[m][n / 8], &high = s[m][n / 8 + 1];
        a[m][0] = word_of<T>(low[0], low[1]);
        a[m][1] = word_of<T>(low[2], low[3]);
        a[m][2] = word_of<T>(high[0], high[1]);
        a[m][3] = word_of<T>(high[2], high[3]);
      }
#pragma unroll
      for (int c = 0; c < kValue; c += 16) {
        uint32_t b[4];
        load_transposed(b, right.at(n, c));
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) {
          multiply_add<T>(out[m][c / 8], a[m], b[0], b[1]);
          multiply_add<T>(out[m][c / 8 + 1], a[m], b[2], b[3]);
        }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = warp_row + m * 16 + h * 8 + lane / 4, token = p.packing.token(r);
      const bool inside = r < valid;
      const int head = first_head + r - token * p.packing.heads;
      float l = sum[m][h];
      l += __shfl_xor_sync(0xffffffffu, l, 1);
      l += __shfl_xor_sync(0xffffffffu, l, 2);
      const RowResult result =
          row_result(p, inside, head, earlier_lse(p, inside, head, tile.row + token), top[m][h] * unit, l);
      const int64_t at = static_cast<int64_t>(head) * p.q_count + tile.row + token;
      const int64_t to =
          static_cast<int64_t>(tile.row + token) * p.o_stride + static_cast<int64_t>(head) * p.value_dim;
      if (p.wide)
        store_wide_row(out[m], h, result.factor, result.share != 0.0f ? p.o_before + to : nullptr,
                       result.share, static_cast<float*>(p.o_out) + to, p.value_dim, inside);
      else
        store_row<T>(out[m], h, result.factor, static_cast<T*>(p.o_out) + to, p.value_dim, inside);
      if (inside && lane % 4 == 0) p.lse_out[at] = result.lse;
    }
}

}  // namespace quintet::kernels::cuda
