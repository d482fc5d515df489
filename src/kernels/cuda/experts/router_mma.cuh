// The router's GEMMs on tensor cores. One operand is narrow (routes), the other is all the activations, read
// or written once: it moves between global memory and registers, 16 bytes at a time, bypassing shared
// memory.
//
// This works because the terms of a dot product may be numbered in any order, as long as it is the same for
// both operands, and so may the columns of a result. In fragments of m16n8k16 a lane is (group, quarter) =
// (lane / 4, lane % 4) and holds, of A, rows group and group + 8, of B, column group, of both k = 2 quarter +
// {0, 1, 8, 9}; of the result, rows group and group + 8 and columns 2 quarter + {0, 1}. The matrix elements
// assigned to these indices are chosen such that a lane's elements are contiguous.
#pragma once

#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"
#include "kernels/routing_shapes.h"

namespace quintet::kernels::cuda {

template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, F16>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  multiply_add<T>(c, a.x, a.y, a.z, a.w, b0, b1);
}

// 16 bytes that are used once: L1 is left to reused data. Volatile keeps it after await_previous().
template <class T>
__device__ __forceinline__ uint4 fetch_once(const T* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

struct RouterSizes {
  int64_t rows;
  int routes, embed;
  explicit RouterSizes(const RouterShape& s)
      : rows(s.rows), routes(static_cast<int>(s.routes)), embed(static_cast<int>(s.embed)) {}
};

struct Lane {
  int group, quarter;
  __device__ __forceinline__ Lane()
      : group(static_cast<int>(threadIdx.x % 32 / 4)), quarter(static_cast<int>(threadIdx.x % 4)) {}
};

// logits[rows, routes] = x[rows, embed] w[routes, embed]^T. A warp has 16 * kHigh rows, 8 * kTiles routes and
// one of kDepths parts of k, which are added in order at the end. embed is a multiple of 8, x and w are
// aligned to 16 bytes.
template <class T, int kTiles, int kHigh, int kRowWarps, int kDepths>
struct RouterLogits {
  static constexpr int kThreads = 32 * kRowWarps * kDepths, kWarpRows = 16 * kHigh,
                       kRows = kWarpRows * kRowWarps, kRoutes = 8 * kTiles;
  // Line length: a warp reads 4 KB at a time, half as much where the sums take the registers.
  static constexpr int kHalves = (kTiles < 4 ? 4 : 2) / kHigh, kLine = 32 * kHalves;
  static constexpr int kResident = kTiles == 1 ? 4 : kTiles <= 4 ? 2 : 1;
  static constexpr int kSums = kHigh * kTiles * 4;                     // per lane
  static constexpr bool kAtOnce = kRowWarps * kDepths * kSums <= 128;  // all parts fit into shared memory

  const T *x, *w;
  float* logits;
  RouterSizes sizes;

  int64_t row_blocks() const { return divide_up(sizes.rows, kRows); }
  __host__ __device__ __forceinline__ int route_blocks() const {
    return (sizes.routes + kRoutes - 1) / kRoutes;
  }

  // Stores sum i of a lane of the warp whose rows start at row0 and routes at route0.
  __device__ __forceinline__ void put(int64_t row0, int route0, int lane, int i, float sum) const {
    const int64_t row = row0 + i / (kTiles * 4) * 16 + i % 4 / 2 * 8 + lane / 4;
    const int route = route0 + 8 * (i / 4 % kTiles) + 2 * (lane % 4) + i % 2;
    if (row < sizes.rows && route < sizes.routes) logits[row * sizes.routes + route] = sum;
  }

  __device__ __forceinline__ void run() const {
    __shared__ float shared[kAtOnce ? kDepths : 1][kRowWarps][kSums][32];
    const auto [rows, routes, embed] = sizes;
    const Lane lane;
    const int warp = static_cast<int>(threadIdx.x / 32), row_warp = warp % kRowWarps,
              depth = warp / kRowWarps;
    // Blocks with the same rows are neighbours.
    const int64_t block_row = static_cast<int64_t>(static_cast<int>(blockIdx.x) / route_blocks()) * kRows,
                  row0 = block_row + row_warp * kWarpRows;
    const int route0 = static_cast<int>(blockIdx.x) % route_blocks() * kRoutes;
    const T* const from = x + (row0 + lane.group) * embed + 8 * lane.quarter;
    const auto here =
        static_cast<int>(rows - row0 < kWarpRows ? rows - row0 : kWarpRows) - lane.group;  // 8 r < here
    const T* const weights = w + static_cast<int64_t>(route0 + lane.group) * embed + 8 * lane.quarter;
    const int length = embed - 8 * lane.quarter;  // for this lane
    const int share = (embed + kDepths * kLine - 1) / (kDepths * kLine) * kLine, first = depth * share,
              last = first + share < embed ? first + share : embed;
    float sum[kHigh][kTiles][4] = {};
#pragma unroll 1
    for (int line = first; line < last; line += kLine) {
      uint4 a[kHalves][2 * kHigh];
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const int at = line + 32 * h;
#pragma unroll
        for (int r = 0; r < 2 * kHigh; ++r)
          a[h][r] = 8 * r < here && at < length ? fetch_once(from + int64_t{8 * r} * embed + at)
                                                : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        const int at = line + 32 * h;
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const bool in = route0 + 8 * t + lane.group < routes && at < length;
          const uint4 b = in ? *reinterpret_cast<const uint4*>(weights + int64_t{8 * t} * embed + at)
                             : make_uint4(0, 0, 0, 0);
#pragma unroll
          for (int m = 0; m < kHigh; ++m) {
            const uint4 &top = a[h][2 * m], &low = a[h][2 * m + 1];
            multiply_add<T>(sum[m][t], top.x, low.x, top.y, low.y, b.x, b.y);
            multiply_add<T>(sum[m][t], top.z, low.z, top.w, low.w, b.z, b.w);
          }
        }
      }
    }
    const int me = static_cast<int>(threadIdx.x % 32);
    const auto sum_of = [&](int i) -> float& { return sum[i / (kTiles * 4)][i / 4 % kTiles][i % 4]; };
    if constexpr (kAtOnce) {
      // Every warp adds up some of the sums, for all lanes.
#pragma unroll
      for (int i = 0; i < kSums; ++i) shared[depth][row_warp][i][me] = sum_of(i);
      __syncthreads();
      for (int i = warp; i < kRowWarps * kSums; i += kThreads / 32) {
        float total = shared[0][i / kSums][i % kSums][me];
#pragma unroll
        for (int d = 1; d < kDepths; ++d) total += shared[d][i / kSums][i % kSums][me];
        put(block_row + i / kSums * kWarpRows, route0, me, i % kSums, total);
      }
    } else {
      float(*const mine)[32] = shared[0][row_warp];
      for (int d = 1; d < kDepths; ++d) {
        if (depth == d)
#pragma unroll
          for (int i = 0; i < kSums; ++i) mine[i][me] = sum_of(i);
        __syncthreads();
        if (depth == 0)
#pragma unroll
          for (int i = 0; i < kSums; ++i) sum_of(i) += mine[i][me];
        __syncthreads();
      }
      if (depth != 0) return;
#pragma unroll
      for (int i = 0; i < kSums; ++i) put(row0, route0, me, i, sum_of(i));
    }
  }
};

// A fragment of A from f32, in two parts: together 16 bits of each number, whose products with bf16 are
// exact.
struct SplitFragment {
  uint4 high, low;
  // From rows group (top) and group + 8, four k each.
  __device__ __forceinline__ SplitFragment(const float (&top)[4], const float (&bottom)[4])
      : high(make_uint4(word_of<Bf16>(top[0], top[1]), word_of<Bf16>(bottom[0], bottom[1]),
                        word_of<Bf16>(top[2], top[3]), word_of<Bf16>(bottom[2], bottom[3]))),
        low(make_uint4(rest(high.x, top[0], top[1]), rest(high.y, bottom[0], bottom[1]),
                       rest(high.z, top[2], top[3]), rest(high.w, bottom[2], bottom[3]))) {}

 private:
  static __device__ __forceinline__ uint32_t rest(uint32_t word, float first, float second) {
    const float2 kept = pair_of<Bf16>(word);
    return word_of<Bf16>(first - kept.x, second - kept.y);
  }
};

// dx[rows, embed] = dlogits[rows, routes] w[routes, embed], for bf16. A block keeps 256 columns of w in
// registers, 32 per warp, and iterates over its rows; each warp makes fragments of dlogits for all warps. k =
// 16 s + 4 quarter + i is a lane's i-th of step s; column 8 quarter + 2 tile + {0, 1} is its part of a tile.
// embed is a multiple of 8, dx aligned to 16 bytes, routes at most 16 * kSteps.
template <int kSteps>
struct RouterDx {
  static constexpr int kWarps = 8, kThreads = 32 * kWarps, kColumns = 32 * kWarps;
  static constexpr int kRowTiles = kSteps < kWarps ? kWarps / kSteps : 1, kRows = 16 * kRowTiles;
  static constexpr int kShare = divide_up(kRowTiles * kSteps, kWarps);  // fragments made by a warp
  static constexpr int kResident = kSteps <= 2 ? 4 : kSteps == 4 ? 3 : kSteps == 8 ? 2 : 1;

  const float* dlogits;
  const Bf16* w;
  Bf16* dx;
  RouterSizes sizes;

  int64_t strips() const { return divide_up(sizes.embed, kColumns); }
  int64_t parts() const {
    // As many blocks as 132 multiprocessors hold.
    const int64_t most = divide_up(132 * kResident - strips() + 1, strips()),
                  tiles = divide_up(sizes.rows, kRows);
    return tiles < most ? tiles : most < 1 ? 1 : most;
  }

  struct Terms {
    float top[kShare][4], bottom[kShare][4];
  };
  __device__ __forceinline__ Terms fetch_terms(int64_t tile) const {
    const auto [rows, routes, embed] = sizes;
    const Lane lane;
    Terms out;
#pragma unroll
    for (int f = 0; f < kShare; ++f) {
      const int fragment = static_cast<int>(threadIdx.x / 32) + f * kWarps;
      const int64_t row = tile * kRows + fragment / kSteps * 16 + lane.group;
      const int route = fragment % kSteps * 16 + 4 * lane.quarter;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool in = route + i < routes;
        out.top[f][i] = in && row < rows ? dlogits[row * routes + route + i] : 0.0f;
        out.bottom[f][i] = in && row + 8 < rows ? dlogits[(row + 8) * routes + route + i] : 0.0f;
      }
    }
    return out;
  }

  __device__ __forceinline__ void run() const {
    __shared__ uint4 fragments[2][2][kRowTiles * kSteps][32];  // [half][high, low]
    const auto [rows, routes, embed] = sizes;
    const Lane lane;
    const int warp = static_cast<int>(threadIdx.x / 32), me = static_cast<int>(threadIdx.x % 32);
    const int64_t tiles = (rows + kRows - 1) / kRows, begin = tiles * blockIdx.y / gridDim.y,
                  end = tiles * (blockIdx.y + 1) / gridDim.y;
    Terms terms = fetch_terms(begin);
    const int column0 = static_cast<int>(blockIdx.x) * kColumns + warp * 32;
    uint32_t b[kSteps][4][2];
    const auto weight = [&](int route, int column) -> uint32_t {
      return route < routes && column < embed ? fetch<1>(w + static_cast<int64_t>(route) * embed + column).raw
                                              : 0u;
    };
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int t = 0; t < 4; ++t)
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int route = 16 * s + 4 * lane.quarter + 2 * i;
          const int column = column0 + lane.group / 2 * 8 + 2 * t + lane.group % 2;
          b[s][t][i] = weight(route, column) | weight(route + 1, column) << 16;
        }
    int half = 0;
    for (int64_t tile = begin; tile < end; ++tile, half ^= 1) {
#pragma unroll
      for (int f = 0; f < kShare; ++f) {
        const int fragment = warp + f * kWarps;
        const SplitFragment split(terms.top[f], terms.bottom[f]);
        if (fragment >= kRowTiles * kSteps) continue;
        fragments[half][0][fragment][me] = split.high;
        fragments[half][1][fragment][me] = split.low;
      }
      __syncthreads();  // the other half was read before this barrier, and is written after it
      if (tile + 1 < end) terms = fetch_terms(tile + 1);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        float sum[4][4] = {};
#pragma unroll
        for (int s = 0; s < kSteps; ++s)
#pragma unroll
          for (int part = 0; part < 2; ++part) {
            const uint4 a = fragments[half][part][m * kSteps + s][me];
#pragma unroll
            for (int t = 0; t < 4; ++t) multiply_add<Bf16>(sum[t], a, b[s][t][0], b[s][t][1]);
          }
        const int column = column0 + 8 * lane.quarter;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int64_t row = tile * kRows + 16 * m + 8 * r + lane.group;
          Vals<float, 8> out;
#pragma unroll
          for (int i = 0; i < 8; ++i) out.v[i] = sum[i / 2][2 * r + i % 2];
          if (row < rows && column < embed) store<8>(dx + row * embed + column, out);
        }
      }
    }
  }
};

// partial[chunk, routes, embed] = the chunk's part of dlogits[rows, routes]^T x[rows, embed], for bf16. A
// warp has 64 columns and 16 * kTiles routes, a block four adjacent warps; fragments of dlogits are made once
// for all four. Row 4 quarter + i of a step of 16 rows is a lane's i-th k; column 8 group + tile is its part
// of a tile of x, so that the rows' 16-byte vectors become the fragments of 8 tiles. embed is a multiple of
// 8, x and partial are aligned to 16 bytes.
template <int kTiles>
struct RouterDw {
  static constexpr int kWarps = 4, kThreads = 32 * kWarps, kColumns = 64 * kWarps, kRoutes = 16 * kTiles;
  static constexpr int kResident = kTiles == 1 ? 4 : kTiles == 2 ? 3 : 2;
  static constexpr int kAhead = 2;  // steps whose operands are in flight; they alternate halves
  static_assert(kAhead % 2 == 0);
  static_assert(kTiles <= kWarps);  // a warp makes a fragment

  const float* dlogits;
  const Bf16* x;
  float* partial;
  RouterSizes sizes;

  struct Packs {
    uint4 row[4];
  };

  __device__ __forceinline__ void run() const {
    __shared__ uint4 fragments[2][2][kTiles][32];  // [half][high, low]
    const auto [rows, routes, embed] = sizes;
    const Lane lane;
    const int warp = static_cast<int>(threadIdx.x / 32), me = static_cast<int>(threadIdx.x % 32);
    const int64_t chunk = blockIdx.z, chunks = gridDim.z;
    const int64_t begin = rows * chunk / chunks, end = rows * (chunk + 1) / chunks;
    const int column0 = (static_cast<int>(blockIdx.x) * kWarps + warp) * 64,
              column = column0 + 8 * lane.group;
    const int route0 = static_cast<int>(blockIdx.y) * kRoutes;
    const auto packs_at = [&](int64_t row) {
      Packs p;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t r = row + 4 * lane.quarter + i;
        p.row[i] = r < end && column < embed ? fetch_once(x + r * embed + column) : make_uint4(0, 0, 0, 0);
      }
      return p;
    };
    struct Terms {
      float top[4], bottom[4];
    };
    const auto terms_at = [&](int64_t row) {
      Terms t = {};
      if (warp >= kTiles) return t;
      const int route = route0 + 16 * warp + lane.group;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t r = row + 4 * lane.quarter + i;
        if (r < end && route < routes) t.top[i] = dlogits[r * routes + route];
        if (r < end && route + 8 < routes) t.bottom[i] = dlogits[r * routes + route + 8];
      }
      return t;
    };
    float sum[kTiles][8][4] = {};
    Packs ahead[kAhead];
    Terms terms[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      ahead[a] = packs_at(begin + 16 * a);
      terms[a] = terms_at(begin + 16 * a);
    }
    for (int64_t first = begin; first < end; first += 16 * kAhead) {
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {  // a step past the end adds zeros
        const int64_t row = first + 16 * a;
        const int half = a % 2;
        if (warp < kTiles) {
          const SplitFragment split(terms[a].top, terms[a].bottom);
          fragments[half][0][warp][me] = split.high;
          fragments[half][1][warp][me] = split.low;
        }
        __syncthreads();  // the other half was read before this barrier, and is written after it
        terms[a] = terms_at(row + 16 * kAhead);
        uint32_t b[8][2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint4 &even = ahead[a].row[2 * i], &odd = ahead[a].row[2 * i + 1];
          const uint32_t low[4] = {even.x, even.y, even.z, even.w}, high[4] = {odd.x, odd.y, odd.z, odd.w};
#pragma unroll
          for (int q = 0; q < 4; ++q) {
            b[2 * q][i] = __byte_perm(low[q], high[q], 0x5410);
            b[2 * q + 1][i] = __byte_perm(low[q], high[q], 0x7632);
          }
        }
        ahead[a] = packs_at(row + 16 * kAhead);
#pragma unroll
        for (int m = 0; m < kTiles; ++m)
#pragma unroll
          for (int part = 0; part < 2; ++part) {
            const uint4 left = fragments[half][part][m][me];
#pragma unroll
            for (int t = 0; t < 8; ++t) multiply_add<Bf16>(sum[m][t], left, b[t][0], b[t][1]);
          }
      }
    }
    // Of its rows a lane has the 16 columns of two groups.
#pragma unroll
    for (int m = 0; m < kTiles; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int route = route0 + 16 * m + 8 * r + lane.group;
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          const int to = column0 + 16 * lane.quarter + 8 * pair;
          if (route >= routes || to >= embed) continue;
#pragma unroll
          for (int q = 0; q < 2; ++q)
            store<4>(partial + (chunk * routes + route) * embed + to + 4 * q,
                     Vals<float, 4>{{sum[m][4 * q][2 * r + pair], sum[m][4 * q + 1][2 * r + pair],
                                     sum[m][4 * q + 2][2 * r + pair], sum[m][4 * q + 3][2 * r + pair]}});
        }
      }
  }
};

// kResident blocks must fit on a multiprocessor at a time.
template <class Product>
__global__ void __launch_bounds__(Product::kThreads, Product::kResident)
    router_mma_kernel(const __grid_constant__ Product product) {
  await_previous();
  product.run();
}

}  // namespace quintet::kernels::cuda
