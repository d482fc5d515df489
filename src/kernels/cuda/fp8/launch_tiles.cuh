// Kernels that write tiles of codes of one matrix, from a source of values.
#pragma once

#include "kernels/cuda/fp8/tile.cuh"
#include "kernels/cuda/support/launch.cuh"

namespace quintet::kernels::cuda {

// A Source has, for eight columns at (row, column),
//   Loaded load(int64_t row, int64_t column) const
//   Eight<Bf16> values(const Loaded&, int64_t row, int64_t column) const
// Rows of the source may be a part of a matrix of `values` elements, whose first row in the codes is `shift`.

template <base::DType kFormat, bool kRows, bool kColumns, bool kMeasured, class Source>
__device__ __forceinline__ void write_codes(const Source& source, const TilePlace& place, int64_t shift,
                                            const CodeTarget& to, int64_t values) {
  typename Source::Loaded loaded[kTileRows][kTileRuns];
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
#pragma unroll
    for (int run = 0; run < kTileRuns; ++run)
      if (place.inside(run)) loaded[i][run] = source.load(place.row(i), place.column(run));
  const float scale = *to.scale;
  TileCodes codes;
  [[maybe_unused]] Seen<kFormat> seen;
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
#pragma unroll
    for (int run = 0; run < kTileRuns; ++run) {
      if (!place.inside(run)) continue;
      const Eight<Bf16> v = source.values(loaded[i][run], place.row(i), place.column(run));
      codes.code[i][run] = codes_of<kFormat>(v, scale);
      if constexpr (kMeasured) seen.add(v, codes.code[i][run], scale);
    }
  if constexpr (kRows) store_rows(codes, place, to.rows + shift * to.row_stride, to.row_stride);
  if constexpr (kColumns) {
    __shared__ TransposedTile tile;
    store_columns(codes, place, tile, to.columns + shift, to.column_stride);
  }
  if constexpr (kMeasured) add_measures(seen, to.measures, values);
}

// Calls f with the constants of a target: its format, which orders are wanted, and whether it is measured.
template <base::DType kFormat>
struct FormatOf {
  static constexpr base::DType value = kFormat;
};
template <class F>
void with_orders(const CodeTarget& to, const char* what, F&& f) {
  const auto with_measures = [&](auto in_rows, auto in_columns) {
    if (to.measures.amax != nullptr)
      f(in_rows, in_columns, std::true_type{});
    else
      f(in_rows, in_columns, std::false_type{});
  };
  if (to.rows != nullptr && to.columns != nullptr)
    with_measures(std::true_type{}, std::true_type{});
  else if (to.rows != nullptr)
    with_measures(std::true_type{}, std::false_type{});
  else if (to.columns != nullptr)
    with_measures(std::false_type{}, std::true_type{});
  else
    fail(std::string(what) + ": no place for the codes");
}
template <class F>
void with_format(base::DType format, F&& f) {
  if (format == base::DType::E5M2)
    f(FormatOf<base::DType::E5M2>{});
  else
    f(FormatOf<base::DType::E4M3>{});
}

inline unsigned tiles_of(int64_t n) { return static_cast<unsigned>(divide_up(n, int64_t{kTile})); }

// Sizes in sixteens, everything aligned.
inline void check_codes(const CodeTarget& to, int64_t rows, int64_t columns, bool aligned, const char* what) {
  const bool ok = aligned && rows % 16 == 0 && columns % 16 == 0 && all_aligned16(to.rows, to.columns) &&
                  (to.rows == nullptr || to.row_stride % 16 == 0) &&
                  (to.columns == nullptr || to.column_stride % 16 == 0);
  if (!ok)
    fail(std::string(what) + ": " + std::to_string(rows) + " x " + std::to_string(columns) +
         " values: sizes, strides and addresses must be multiples of 16");
}

}  // namespace quintet::kernels::cuda
