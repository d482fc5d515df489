// Backward in two kernels, each of which recomputes the scores and owns what it writes. With P the
// probabilities, F the dropout factors and delta = dout . o of a row:
//   dv = (P F)^T dout,  dS = P (F dP - delta) with dP = dout v^T,  dk = scale dS^T q,  dq = scale dS k;
// a soft cap multiplies dS by 1 - tanh^2.
//
// tiled_dq has blocks of query rows like the forward pass, and computes delta along the way. tiled_dkv has
// blocks of keys and walks the queries that see them; scores are transposed there (keys are the rows), so
// that P and dS are left operands as computed, and the MMAs themselves sum over the heads of a group.
#pragma once

#include "kernels/cuda/attention/problem.cuh"

namespace quintet::kernels::cuda {

template <int kQk, int kValue>
struct DqTiles {
  static constexpr int kRows = dq_rows({kQk, kValue}), kRowTiles = kRows / (16 * kWarps);
  static constexpr int kKeys = kQk > 96 ? 32 : 64;  // per stage; scores are computed 32 keys at a time
  static constexpr int kSub = 32;
  static constexpr int kBlocks = kQk <= 64 ? 3 : kQk <= 192 ? 2 : 1;
  static constexpr int kBytes = (kRows + 2 * kKeys) * (kQk + kValue) * 2 + kRows * 16;
};

// The score under a soft cap, and the factor of its gradient.
__device__ __forceinline__ float capped(float s, float inner, float cap, float& slope) {
  const float t = tanh_fast(s * inner);
  slope = 1.0f - t * t;
  return cap * t;
}

template <class T, int kQk, int kValue, bool kExtra>
__global__ void __launch_bounds__(kTiledThreads, DqTiles<kQk, kValue>::kBlocks)
    tiled_dq(const __grid_constant__ TiledProblem p) {
  await_previous();
  using Tiles = DqTiles<kQk, kValue>;
  constexpr int kRowTiles = Tiles::kRowTiles, kKeys = Tiles::kKeys, kRows = Tiles::kRows, kSub = Tiles::kSub;
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

  const uint32_t q_tile = shared_address(tiled_memory), dout_tile = q_tile + kRows * kQk * 2,
                 k_tiles = dout_tile + kRows * kValue * 2, v_tiles = k_tiles + 2 * kKeys * kQk * 2;
  // Per row: lse in units of log2 and delta; the keys that it sees.
  auto* const row_stats = reinterpret_cast<float2*>(tiled_memory + (kRows + 2 * kKeys) * (kQk + kValue) * 2);
  auto* const row_keys = reinterpret_cast<Span*>(row_stats + kRows);
  const T* const q = static_cast<const T*>(p.q) + static_cast<int64_t>(tile.row) * p.q_stride +
                     static_cast<int64_t>(first_head) * p.head_dim;
  const int64_t o_begin =
      static_cast<int64_t>(tile.row) * p.o_stride + static_cast<int64_t>(first_head) * p.value_dim;
  const auto o_row = [&](int r) {
    const int token = p.packing.token(r);
    return o_begin + token * p.o_stride + (r - token * p.packing.heads) * p.value_dim;
  };
  load_rows<kQk, kRows, T>(q_tile, valid, p.head_dim, [&](int r) {
    const int token = p.packing.token(r);
    return q + token * p.q_stride + (r - token * p.packing.heads) * p.head_dim;
  });
  load_rows<kValue, kRows, T>(dout_tile, valid, p.value_dim,
                              [&](int r) { return static_cast<const T*>(p.dout) + o_row(r); });
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

  // delta of the warp's rows, a group of lanes per row.
  const int warp_row = warp * 16 * kRowTiles;
  {
    constexpr int kLanes = kValue <= 64 ? 8 : kValue <= 128 ? 16 : 32, kAtOnce = 32 / kLanes;
#pragma unroll 4
    for (int i = 0; i < 16 * kRowTiles; i += kAtOnce) {
      const int r = warp_row + i + lane / kLanes, column = lane % kLanes * 8;
      float part = 0.0f;
      if (r < valid && column < p.value_dim) {
        const int64_t at = o_row(r) + column;
        const auto a = load<8>(static_cast<const T*>(p.o) + at),
                   b = load<8>(static_cast<const T*>(p.dout) + at);
#pragma unroll
        for (int e = 0; e < 8; ++e) part += a.v[e] * b.v[e];
      }
#pragma unroll
      for (int d = kLanes / 2; d > 0; d /= 2) part += __shfl_xor_sync(0xffffffffu, part, d);
      if (lane % kLanes == 0) {
        const int token = p.packing.token(r), head = first_head + r - token * p.packing.heads;
        float lse = 0.0f;
        Span seen{0, 0};
        if (r < valid) {
          const int64_t at = static_cast<int64_t>(head) * p.q_count + tile.row + token;
          p.delta_out[at] = part;
          lse = p.lse[at] * kLog2E;
          seen = p.keys(tile.sequence, tile.position + token);
        }
        row_stats[r] = make_float2(lse, part);
        row_keys[r] = seen;
      }
    }
    __syncwarp();
  }

  Span some{0, 0}, all{0, 0};
  if (warp_row < valid) {
    const Span first = p.keys(tile.sequence, tile.position + p.packing.token(warp_row)),
               end = p.keys(tile.sequence,
                            tile.position + p.packing.token(lesser(warp_row + 16 * kRowTiles, valid) - 1));
    some = {first.begin, end.end};
    all = {end.begin, first.end};
  }

  const float unit = p.scale * kLog2E;
  float dq[kRowTiles][kQk / 8][4];
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (auto& x : dq[m]) x[0] = x[1] = x[2] = x[3] = 0.0f;

  for (int stage = 0; more; stage ^= 1) {
    const int block_begin = walk.position, block_count = walk.count(kKeys);
    more = walk.next(p.k_rows, tile.sequence, tile_keys, kKeys);
    await_copies<0>();
    __syncthreads();
    if (more) load_block(walk, stage ^ 1);
    end_copies();
#pragma unroll 1
    for (int sub = 0; sub < kKeys; sub += kSub) {
      const int begin = block_begin + sub, count = lesser(block_count - sub, kSub);
      if (count <= 0 || begin >= some.end || begin + count <= some.begin) continue;
      float s[kRowTiles][kSub / 8][4], g[kRowTiles][kSub / 8][4];
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int j = 0; j < kSub / 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) s[m][j][i] = g[m][j][i] = 0.0f;
      const uint32_t k_tile = k_tiles + (stage * kKeys + sub) * kQk * 2,
                     v_tile = v_tiles + (stage * kKeys + sub) * kValue * 2;
      {
        const auto left = left_operand<kQk>(q_tile, warp_row, lane);
        const auto right = right_operand<kQk>(k_tile, lane);
#pragma unroll
        for (int c = 0; c < kQk; c += 16) {
          uint32_t a[kRowTiles][4];
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) load_matrices(a[m], left.at(m * 16, c));
#pragma unroll
          for (int n = 0; n < kSub; n += 16) {
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
      {
        const auto left = left_operand<kValue>(dout_tile, warp_row, lane);
        const auto right = right_operand<kValue>(v_tile, lane);
#pragma unroll
        for (int c = 0; c < kValue; c += 16) {
          uint32_t a[kRowTiles][4];
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) load_matrices(a[m], left.at(m * 16, c));
#pragma unroll
          for (int n = 0; n < kSub; n += 16) {
            uint32_t b[4];
            load_matrices(b, right.at(n, c));
#pragma unroll
            for (int m = 0; m < kRowTiles; ++m) {
              multiply_add<T>(g[m][n / 8], a[m], b[0], b[1]);
              multiply_add<T>(g[m][n / 8 + 1], a[m], b[2], b[3]);
            }
          }
        }
      }
      const bool masked = begin < all.begin || begin + kSub > all.end || count < kSub;
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int r = warp_row + m * 16 + h * 8 + lane / 4;
          int from = -kSub, to = kSub;
          if (masked) {
            const Span own = row_keys[r];
            from = own.begin - begin - lane % 4 * 2;
            to = lesser(own.end - begin, count) - lane % 4 * 2;
          }
          const float2 stats = row_stats[r];
#pragma unroll
          for (int j = 0; j < kSub / 8; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const float raw = s[m][j][2 * h + i];
              float slope = 1.0f, exponent;
              if (kExtra && p.soft_cap > 0)
                exponent = capped(raw, p.scale / p.soft_cap, p.soft_cap, slope) * kLog2E;
              else
                exponent = raw * unit;
              const bool seen = j * 8 + i >= from && j * 8 + i < to;
              const float weight = seen ? exp2_fast(exponent - stats.x) : 0.0f;
              float dp = g[m][j][2 * h + i];
              if (kExtra && p.threshold > 0) {
                const int token = p.packing.token(r);
                dp = !seen || r >= valid
                         ? 0.0f
                         : dp * p.keep(tile.row + token, first_head + r - token * p.packing.heads,
                                       p.key_position(tile.sequence, begin + j * 8 + lane % 4 * 2 + i));
              }
              float ds = weight * (dp - stats.y);
              if (kExtra) ds *= slope;
              s[m][j][2 * h + i] = ds;
            }
        }
      const auto right = right_transposed<kQk>(k_tile, lane);
#pragma unroll
      for (int n = 0; n < kSub; n += 16) {
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
        for (int c = 0; c < kQk; c += 16) {
          uint32_t b[4];
          load_transposed(b, right.at(n, c));
#pragma unroll
          for (int m = 0; m < kRowTiles; ++m) {
            multiply_add<T>(dq[m][c / 8], a[m], b[0], b[1]);
            multiply_add<T>(dq[m][c / 8 + 1], a[m], b[2], b[3]);
          }
        }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < kRowTiles; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = warp_row + m * 16 + h * 8 + lane / 4, token = p.packing.token(r);
      const int64_t to = static_cast<int64_t>(tile.row + token) * p.dq_stride +
                         static_cast<int64_t>(first_head + r - token * p.packing.heads) * p.head_dim;
      if (p.wide)
        store_wide_row(dq[m], h, p.scale, p.dq_before != nullptr ? p.dq_before + to : nullptr, 1.0f,
                       static_cast<float*>(p.dq) + to, p.head_dim, r < valid);
      else
        store_row<T>(dq[m], h, p.scale, static_cast<T*>(p.dq) + to, p.head_dim, r < valid);
    }
}

template <int kQk, int kValue>
struct DkvTiles {
  static constexpr int kKeys = dkv_keys({kQk, kValue}), kKeyTiles = kKeys / (16 * kWarps);
  static constexpr int kRows = dkv_rows({kQk, kValue});               // query rows per stage
  static constexpr int kSub = kQk > 128 || kKeyTiles == 2 ? 32 : 64;  // scores computed at a time
  static constexpr bool kSplit = kQk + kValue > 320;  // dk and dv do not fit the registers together
  static constexpr int kBlocks = kSplit ? 1 : 2;
  static constexpr int kBytes =
      (kKeys + 2 * kRows) * (kQk + kValue) * 2 + (2 * 2 * 4 + 8) * kRows + kKeys * 8;
};

template <class T, int kQk, int kValue, bool kExtra, bool kDk, bool kDv>
__global__ void __launch_bounds__(kTiledThreads, DkvTiles<kQk, kValue>::kBlocks)
    tiled_dkv(const __grid_constant__ TiledProblem p) {
  await_previous();
  using Tiles = DkvTiles<kQk, kValue>;
  constexpr int kKeyTiles = Tiles::kKeyTiles, kKeys = Tiles::kKeys, kRows = Tiles::kRows, kSub = Tiles::kSub;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int kv_head = static_cast<int>(blockIdx.x) % p.kv_heads,
            rank = static_cast<int>(blockIdx.x) / p.kv_heads;
  // The first keys of a sequence, which most queries see, come first.
  const RowTile tile = row_tile(p.k_rows, kKeys, p.order != nullptr ? static_cast<int>(p.order[rank]) : rank);
  if (p.idle(tile.sequence)) return;
  const int heads = p.packing.heads;

  const uint32_t k_tile = shared_address(tiled_memory), v_tile = k_tile + kKeys * kQk * 2,
                 q_tiles = v_tile + kKeys * kValue * 2, dout_tiles = q_tiles + 2 * kRows * kQk * 2,
                 stats = dout_tiles + 2 * kRows * kValue * 2;  // per stage: lse and delta
  const auto* const stat_values =
      reinterpret_cast<const float*>(tiled_memory + (kKeys + 2 * kRows) * (kQk + kValue) * 2);
  {
    const T *const k = static_cast<const T*>(p.k) + tile.row * p.k_stride +
                       static_cast<int64_t>(kv_head) * p.head_dim,
                   *const v = static_cast<const T*>(p.v) + tile.row * p.v_stride +
                              static_cast<int64_t>(kv_head) * p.value_dim;
    load_strided<kQk, kKeys>(k_tile, tile.count, p.head_dim, k, p.k_stride);
    load_strided<kValue, kKeys>(v_tile, tile.count, p.value_dim, v, p.v_stride);
  }
  // Offsets of the rows of a query block, in elements from its first: in q, and in dout.
  auto* const places = reinterpret_cast<int2*>(tiled_memory + (kKeys + 2 * kRows) * (kQk + kValue) * 2 +
                                               2 * 2 * kRows * 4 + kKeys * 8);
  if (thread < kRows) {
    const int token = p.packing.token(thread), head = thread - token * heads;
    places[thread] = make_int2(token * static_cast<int>(p.q_stride) + head * p.head_dim,
                               token * static_cast<int>(p.o_stride) + head * p.value_dim);
  }
  __syncthreads();
  int part = 0;  // of the group's heads
  const auto load_block = [&](const BlockWalk& at, int stage) {
    const int first_head = kv_head * p.group + part * heads, rows = at.count(p.packing.tokens) * heads;
    const T *const q = static_cast<const T*>(p.q) + at.row * p.q_stride +
                       static_cast<int64_t>(first_head) * p.head_dim,
                   *const dout = static_cast<const T*>(p.dout) + at.row * p.o_stride +
                                 static_cast<int64_t>(first_head) * p.value_dim;
    load_rows<kQk, kRows, T>(q_tiles + stage * kRows * kQk * 2, rows, p.head_dim,
                             [&](int r) { return q + places[r].x; });
    load_rows<kValue, kRows, T>(dout_tiles + stage * kRows * kValue * 2, rows, p.value_dim,
                                [&](int r) { return dout + places[r].y; });
    if (thread < 2 * kRows) {
      const int r = thread % kRows, token = p.packing.token(r);
      const bool inside = r < rows;
      const float* const from =
          (thread < kRows ? p.lse : p.delta) +
          (inside ? static_cast<int64_t>(first_head + r - token * heads) * p.q_count + at.row + token : 0);
      asm volatile(
          "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(stats + (stage * 2 * kRows + thread) * 4),
          "l"(from), "r"(inside ? 4 : 0)
          : "memory");
    }
  };
  const Span seen_by{p.queries(tile.sequence, tile.position).begin,
                     p.queries(tile.sequence, tile.position + tile.count - 1).end};
  BlockWalk walk;
  const auto next = [&] {
    if (walk.next(p.q_rows, tile.sequence, seen_by, p.packing.tokens)) return true;
    if (++part >= p.packing.parts) return false;
    walk = BlockWalk();
    return walk.next(p.q_rows, tile.sequence, seen_by, p.packing.tokens);
  };
  bool more = next();
  if (more) load_block(walk, 0);
  end_copies();

  const int warp_key = warp * 16 * kKeyTiles;
  Span* const key_queries =
      reinterpret_cast<Span*>(tiled_memory + (kKeys + 2 * kRows) * (kQk + kValue) * 2 + 2 * 2 * kRows * 4);
  if (thread < kKeys)
    key_queries[thread] = thread < tile.count ? p.queries(tile.sequence, tile.position + thread) : Span{0, 0};
  Span some{0, 0}, all{0, 0};
  if (warp_key < tile.count) {
    const Span first = p.queries(tile.sequence, tile.position + warp_key),
               end = p.queries(tile.sequence,
                               tile.position + lesser(warp_key + 16 * kKeyTiles, tile.count) - 1);
    some = {first.begin, end.end};
    all = {end.begin, first.end};
  }

  const float unit = p.scale * kLog2E;
  float dk[kKeyTiles][kDk ? kQk / 8 : 1][4], dv[kKeyTiles][kDv ? kValue / 8 : 1][4];
#pragma unroll
  for (int m = 0; m < kKeyTiles; ++m) {
#pragma unroll
    for (auto& x : dk[m]) x[0] = x[1] = x[2] = x[3] = 0.0f;
#pragma unroll
    for (auto& x : dv[m]) x[0] = x[1] = x[2] = x[3] = 0.0f;
  }

  for (int stage = 0; more; stage ^= 1) {
    const int position = walk.position, rows = walk.count(p.packing.tokens) * heads, row = walk.row;
    const int first_head = kv_head * p.group + part * heads;
    more = next();
    await_copies<0>();
    __syncthreads();
    if (more) load_block(walk, stage ^ 1);
    end_copies();
#pragma unroll 1
    for (int sub = 0; sub < kRows; sub += kSub) {
      // Query rows, counted from the block's first, that see any and that see all keys of the warp.
      if (sub >= rows || sub >= (some.end - position) * heads ||
          sub + kSub <= (some.begin - position) * heads)
        continue;
      const bool masked = sub < (all.begin - position) * heads || sub + kSub > (all.end - position) * heads ||
                          sub + kSub > rows;
      const uint32_t q_tile = q_tiles + (stage * kRows + sub) * kQk * 2,
                     dout_tile = dout_tiles + (stage * kRows + sub) * kValue * 2;
      const float* const block_lse = stat_values + stage * 2 * kRows + sub;
      float s[kKeyTiles][kSub / 8][4], g[kDk ? kKeyTiles : 1][kSub / 8][4];
#pragma unroll
      for (int m = 0; m < kKeyTiles; ++m)
#pragma unroll
        for (int j = 0; j < kSub / 8; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            s[m][j][i] = 0.0f;
            if (kDk) g[m][j][i] = 0.0f;
          }
      {
        const auto left = left_operand<kQk>(k_tile, warp_key, lane);
        const auto right = right_operand<kQk>(q_tile, lane);
#pragma unroll
        for (int c = 0; c < kQk; c += 16) {
          uint32_t a[kKeyTiles][4];
#pragma unroll
          for (int m = 0; m < kKeyTiles; ++m) load_matrices(a[m], left.at(m * 16, c));
#pragma unroll
          for (int n = 0; n < kSub; n += 16) {
            uint32_t b[4];
            load_matrices(b, right.at(n, c));
#pragma unroll
            for (int m = 0; m < kKeyTiles; ++m) {
              multiply_add<T>(s[m][n / 8], a[m], b[0], b[1]);
              multiply_add<T>(s[m][n / 8 + 1], a[m], b[2], b[3]);
            }
          }
        }
      }
      if constexpr (kDk) {
        const auto left = left_operand<kValue>(v_tile, warp_key, lane);
        const auto right = right_operand<kValue>(dout_tile, lane);
#pragma unroll
        for (int c = 0; c < kValue; c += 16) {
          uint32_t a[kKeyTiles][4];
#pragma unroll
          for (int m = 0; m < kKeyTiles; ++m) load_matrices(a[m], left.at(m * 16, c));
#pragma unroll
          for (int n = 0; n < kSub; n += 16) {
            uint32_t b[4];
            load_matrices(b, right.at(n, c));
#pragma unroll
            for (int m = 0; m < kKeyTiles; ++m) {
              multiply_add<T>(g[m][n / 8], a[m], b[0], b[1]);
              multiply_add<T>(g[m][n / 8 + 1], a[m], b[2], b[3]);
            }
          }
        }
      }
      int from[kKeyTiles][2], to[kKeyTiles][2];  // for this thread's keys: query rows from `sub` on
#pragma unroll
      for (int m = 0; m < kKeyTiles; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          from[m][h] = -kSub;
          to[m][h] = kSub;
          if (masked) {
            const Span own = key_queries[warp_key + m * 16 + h * 8 + lane / 4];
            from[m][h] = (own.begin - position) * heads - sub - lane % 4 * 2;
            to[m][h] = lesser((own.end - position) * heads, rows) - sub - lane % 4 * 2;
          }
        }
#pragma unroll
      for (int j = 0; j < kSub / 8; ++j) {
        const int column = j * 8 + lane % 4 * 2;
        const float2 lse = *reinterpret_cast<const float2*>(block_lse + column),
                     delta = *reinterpret_cast<const float2*>(block_lse + kRows + column);
#pragma unroll
        for (int m = 0; m < kKeyTiles; ++m)
#pragma unroll
          for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const float raw = s[m][j][2 * h + i];
              float slope = 1.0f, exponent;
              if (kExtra && p.soft_cap > 0)
                exponent = capped(raw, p.scale / p.soft_cap, p.soft_cap, slope) * kLog2E;
              else
                exponent = raw * unit;
              const bool seen = j * 8 + i >= from[m][h] && j * 8 + i < to[m][h];
              float weight = seen ? exp2_fast(exponent - (i == 0 ? lse.x : lse.y) * kLog2E) : 0.0f;
              float keep = 1.0f;
              const int key = warp_key + m * 16 + h * 8 + lane / 4;
              if (kExtra && p.threshold > 0 && seen && key < tile.count) {
                const int r = sub + column + i, token = p.packing.token(r);
                keep = p.keep(row + token, first_head + r - token * heads,
                              p.key_position(tile.sequence, tile.position + key));
              }
              if constexpr (kDk) {
                float dp = g[m][j][2 * h + i];
                if (kExtra) dp *= keep;
                float ds = weight * (dp - (i == 0 ? delta.x : delta.y));
                if (kExtra) ds *= slope;
                g[m][j][2 * h + i] = ds;
              }
              if (kExtra) weight *= keep;
              s[m][j][2 * h + i] = weight;
            }
          }
      }
      if constexpr (kDv) {
        const auto right = right_transposed<kValue>(dout_tile, lane);
#pragma unroll
        for (int n = 0; n < kSub; n += 16) {
          uint32_t a[kKeyTiles][4];
#pragma unroll
          for (int m = 0; m < kKeyTiles; ++m) {
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
            for (int m = 0; m < kKeyTiles; ++m) {
              multiply_add<T>(dv[m][c / 8], a[m], b[0], b[1]);
              multiply_add<T>(dv[m][c / 8 + 1], a[m], b[2], b[3]);
            }
          }
        }
      }
      if constexpr (kDk) {
        const auto right = right_transposed<kQk>(q_tile, lane);
#pragma unroll
        for (int n = 0; n < kSub; n += 16) {
          uint32_t a[kKeyTiles][4];
#pragma unroll
          for (int m = 0; m < kKeyTiles; ++m) {
            const auto &low = g[m][n / 8], &high = g[m][n / 8 + 1];
            a[m][0] = word_of<T>(low[0], low[1]);
            a[m][1] = word_of<T>(low[2], low[3]);
            a[m][2] = word_of<T>(high[0], high[1]);
            a[m][3] = word_of<T>(high[2], high[3]);
          }
#pragma unroll
          for (int c = 0; c < kQk; c += 16) {
            uint32_t b[4];
            load_transposed(b, right.at(n, c));
#pragma unroll
            for (int m = 0; m < kKeyTiles; ++m) {
              multiply_add<T>(dk[m][c / 8], a[m], b[0], b[1]);
              multiply_add<T>(dk[m][c / 8 + 1], a[m], b[2], b[3]);
            }
          }
        }
      }
    }
  }

#pragma unroll
  for (int m = 0; m < kKeyTiles; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int r = warp_key + m * 16 + h * 8 + lane / 4;
      const int64_t row = tile.row + r;
      if constexpr (kDk)
        store_row<T>(dk[m], h, p.scale,
                     static_cast<T*>(p.dk) + row * p.dk_stride + static_cast<int64_t>(kv_head) * p.head_dim,
                     p.head_dim, r < tile.count);
      if constexpr (kDv)
        store_row<T>(dv[m], h, 1.0f,
                     static_cast<T*>(p.dv) + row * p.dv_stride + static_cast<int64_t>(kv_head) * p.value_dim,
                     p.value_dim, r < tile.count);
    }
}

}  // namespace quintet::kernels::cuda
