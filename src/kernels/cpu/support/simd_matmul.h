// Small matmuls on blocks in the workspace, for attention: C = A B or C += A B with C in registers, the rows
// of B and C padded to whole vectors, and A read element by element, so that its strides may describe a
// transpose.
#pragma once

#include "kernels/cpu/support/simd.h"

namespace quintet::kernels::cpu::QUINTET_ISA {

#if defined(__AVX512F__)
inline constexpr int kTileColumns = 4;  // 6 x 4 sums, 4 vectors of B and one of A fill 32 registers
#else
inline constexpr int kTileColumns = 2;  // 6 x 2 sums in 16 registers
#endif
inline constexpr int kTileRows = 6;

// What a group of rows of C needs: its first `columns` columns (rounded up to whole vectors) and the range of
// k that is not known to be zero. Causal blocks save half their work through it.
struct TileRange {
  int64_t columns, k_begin, k_end;
};

template <class S>
struct BlockA {
  const S* at;
  int64_t row_stride, k_stride;
};
template <class S>
struct Rows {
  S* at;
  int64_t stride;
};

template <class S, bool kAdd, int kM, int kN>
inline void tile(BlockA<S> a, Rows<const S> b, Rows<S> c, int64_t k_begin, int64_t k_end) {
  constexpr int w = kLanes<S>;
  Vec<S> sum[kM][kN] = {};
  for (int64_t k = k_begin; k < k_end; ++k) {
    Vec<S> bk[kN];
#pragma GCC unroll 4
    for (int j = 0; j < kN; ++j) bk[j] = load<S>(b.at + k * b.stride + j * w);
#pragma GCC unroll 6
    for (int i = 0; i < kM; ++i) {
      const Vec<S> ai = splat(a.at[i * a.row_stride + k * a.k_stride]);
#pragma GCC unroll 4
      for (int j = 0; j < kN; ++j) sum[i][j] = fma(ai, bk[j], sum[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kN; ++j) {
      S* out = c.at + i * c.stride + j * w;
      store<S>(out, kAdd ? load<S>(out) + sum[i][j] : sum[i][j]);
    }
}

template <class S, bool kAdd, int kM>
inline void tile_row(BlockA<S> a, Rows<const S> b, Rows<S> c, TileRange range) {
  constexpr int w = kLanes<S>;
  int64_t vectors = (range.columns + w - 1) / w;
  for (; vectors >= kTileColumns; vectors -= kTileColumns) {
    tile<S, kAdd, kM, kTileColumns>(a, b, c, range.k_begin, range.k_end);
    b.at += kTileColumns * w;
    c.at += kTileColumns * w;
  }
  if constexpr (kTileColumns == 4) {
    if (vectors == 3) return tile<S, kAdd, kM, 3>(a, b, c, range.k_begin, range.k_end);
    if (vectors == 2) return tile<S, kAdd, kM, 2>(a, b, c, range.k_begin, range.k_end);
  }
  if (vectors == 1) tile<S, kAdd, kM, 1>(a, b, c, range.k_begin, range.k_end);
}

// For rows [0, m) of C in groups; range_of(i, count) gives the TileRange of rows [i, i + count). Columns
// past a group's range are unchanged.
template <class S, bool kAdd, class RangeOf>
inline void block_matmul(int64_t m, BlockA<S> a, Rows<const S> b, Rows<S> c, RangeOf range_of) {
  int64_t i = 0;
  const auto group = [&](auto count) {
    const BlockA<S> ai{a.at + i * a.row_stride, a.row_stride, a.k_stride};
    tile_row<S, kAdd, count>(ai, b, Rows<S>{c.at + i * c.stride, c.stride}, range_of(i, int64_t{count}));
    i += count;
  };
  while (m - i >= kTileRows) group(std::integral_constant<int, kTileRows>{});
  if (m - i >= 4) group(std::integral_constant<int, 4>{});
  if (m - i >= 2) group(std::integral_constant<int, 2>{});
  if (m - i >= 1) group(std::integral_constant<int, 1>{});
}

}  // namespace quintet::kernels::cpu::QUINTET_ISA
