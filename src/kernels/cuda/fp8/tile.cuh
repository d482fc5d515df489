// A block's tile of codes: each thread holds 4 rows of two runs of 8 columns, so that loads and row-major
// stores of a warp are whole sectors, and 4 rows of a column are one word of the transposed tile, which
// passes through shared memory.
#pragma once

#include "kernels/cuda/fp8/convert.cuh"

namespace quintet::kernels::cuda {

inline constexpr int kTile = 128, kTileThreads = 256, kTileRows = 4, kTileRuns = 2;

// Transposed tile: 16-byte vectors of 16 rows. Those of a column are permuted by its number, so that neither
// the words of a warp's store nor the vectors of its load share a bank.
struct TransposedTile {
  uint4 vectors[kTile * kTile / 16];
  static __device__ __forceinline__ int at(int column, int rows16) {
    return column * (kTile / 16) + (rows16 ^ (column / 8 % 8));
  }
};

// The place of a thread in the tile, and of the tile in a matrix.
struct TilePlace {
  int64_t first_row, first_column;  // of the tile
  int64_t rows, columns;            // of the matrix
  static __device__ __forceinline__ int warp() { return static_cast<int>(threadIdx.x / 32); }
  static __device__ __forceinline__ int group() { return static_cast<int>(threadIdx.x % 8); }
  static __device__ __forceinline__ int quad() { return static_cast<int>(threadIdx.x % 32 / 8); }
  __device__ __forceinline__ int64_t row(int i) const { return first_row + warp() * 16 + quad() * 4 + i; }
  __device__ __forceinline__ int64_t column(int run) const {
    return first_column + run * (kTile / kTileRuns) + group() * 8;
  }
  // Rows come in sixteens and columns in eights.
  __device__ __forceinline__ bool inside(int run) const { return row(0) < rows && column(run) < columns; }
};

struct TileCodes {
  uint2 code[kTileRows][kTileRuns];
};

__device__ __forceinline__ void store_rows(const TileCodes& c, const TilePlace& p, uint8_t* to,
                                           int64_t stride) {
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
#pragma unroll
    for (int run = 0; run < kTileRuns; ++run)
      if (p.inside(run)) *reinterpret_cast<uint2*>(to + p.row(i) * stride + p.column(run)) = c.code[i][run];
}

// Bytes (row, column) of four words become words of four rows.
__device__ __forceinline__ void transpose4(uint32_t (&w)[4]) {
  const uint32_t low01 = __byte_perm(w[0], w[1], 0x5140), high01 = __byte_perm(w[0], w[1], 0x7362);
  const uint32_t low23 = __byte_perm(w[2], w[3], 0x5140), high23 = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(low01, low23, 0x5410);
  w[1] = __byte_perm(low01, low23, 0x7632);
  w[2] = __byte_perm(high01, high23, 0x5410);
  w[3] = __byte_perm(high01, high23, 0x7632);
}

// All threads of the block; the tile may be used again after the next barrier.
__device__ __forceinline__ void store_columns(const TileCodes& c, const TilePlace& p, TransposedTile& tile,
                                              uint8_t* to, int64_t stride) {
  auto* const words = reinterpret_cast<uint32_t*>(tile.vectors);
#pragma unroll
  for (int run = 0; run < kTileRuns; ++run)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) w[i] = half == 0 ? c.code[i][run].x : c.code[i][run].y;
      transpose4(w);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int column = run * (kTile / kTileRuns) + TilePlace::group() * 8 + half * 4 + q;
        words[TransposedTile::at(column, TilePlace::warp()) * 4 + TilePlace::quad()] = w[q];
      }
    }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kTile * kTile / 16 / kTileThreads; ++i) {
    const int index = i * kTileThreads + static_cast<int>(threadIdx.x);
    const int column = index / (kTile / 16), rows16 = index % (kTile / 16);
    const int64_t row = p.first_row + rows16 * 16;
    if (p.first_column + column < p.columns && row < p.rows)
      *reinterpret_cast<uint4*>(to + (p.first_column + column) * stride + row) =
          tile.vectors[TransposedTile::at(column, rows16)];
  }
}

}  // namespace quintet::kernels::cuda
