#include "kernels/cuda/fp8/parts.cuh"
#include "kernels/cuda/fp8/quantize.h"

namespace quintet::kernels::cuda {
namespace {

using base::DType;

// A block of values is as wide as a tile.
static_assert(kTile == kCodeBlock);
constexpr int kWarps = kTileThreads / 32;
constexpr int kPairs = kTileRuns * 4;  // pairs of columns of a thread
constexpr uint32_t kNan = 0x7fc00000u;

struct Scale {
  float scale, factor;
};
// Of a block whose largest magnitude has these bits of bf16 (block_scale_exponent() in quantize_args.h).
__device__ __forceinline__ Scale scale_of(uint32_t magnitude) {
  if (magnitude >= 0x7f80u) return {__uint_as_float(kNan), __uint_as_float(kNan)};
  if (magnitude == 0) return {1.0f, 1.0f};
  constexpr int kLargestExponent = 8 + 127;
  constexpr uint32_t kLargestMantissa = 0x60;  // 448 = 1.75 x 2^8
  const int exponent = static_cast<int>(magnitude >> 7);
  const int power = min(kLargestExponent - exponent - ((magnitude & 0x7fu) > kLargestMantissa ? 1 : 0), 126);
  return {__int_as_float((127 + power) << 23), __int_as_float((127 - power) << 23)};
}

__device__ __forceinline__ uint32_t larger_half(uint32_t pair) { return max(pair & 0xffffu, pair >> 16); }

struct BlockTarget {
  uint8_t *rows, *columns;
  float *row_factors, *column_factors;
  int64_t all_rows, all_columns;
  double* rounded;
  int64_t values;
};

// The tile's largest magnitudes: of the rows of a thread, and of its pairs of columns; kSquare: of all.
template <bool kRows, bool kColumns, bool kSquare>
struct Largest {
  uint32_t of_row[kTileRows];
  uint32_t of_pair[kPairs];

  // All threads of the block.
  __device__ __forceinline__ void find(const Eight<Bf16> (&x)[kTileRows][kTileRuns]) {
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      of_pair[p] = 0;
#pragma unroll
      for (int i = 0; i < kTileRows; ++i)
        of_pair[p] = __vmaxu2(of_pair[p], magnitudes_at(x[i][p / 4], p % 4));
    }
    if constexpr (kSquare) {
      find_all();
      return;
    }
    if constexpr (kRows) {
#pragma unroll
      for (int i = 0; i < kTileRows; ++i) {
        uint32_t most = 0;
#pragma unroll
        for (int p = 0; p < kPairs; ++p) most = __vmaxu2(most, magnitudes_at(x[i][p / 4], p % 4));
        of_row[i] = larger_half(most);
      }
#pragma unroll
      for (int i = 0; i < kTileRows; i += 2) {  // two rows at a time, over the eight threads of a row
        uint32_t two = of_row[i] | of_row[i + 1] << 16;
#pragma unroll
        for (int lane = 1; lane < 8; lane *= 2) two = __vmaxu2(two, __shfl_xor_sync(0xffffffffu, two, lane));
        of_row[i] = two & 0xffffu;
        of_row[i + 1] = two >> 16;
      }
    }
    if constexpr (kColumns) find_columns();
  }

 private:
  __device__ __forceinline__ void find_columns() {
    __shared__ uint32_t by_warp[kWarps][kTile / 2];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
#pragma unroll
      for (int lane = 8; lane < 32; lane *= 2)
        of_pair[p] = __vmaxu2(of_pair[p], __shfl_xor_sync(0xffffffffu, of_pair[p], lane));
      if (TilePlace::quad() == 0) by_warp[TilePlace::warp()][pair(p)] = of_pair[p];
    }
    __syncthreads();
    if (threadIdx.x < kTile / 2) {
      uint32_t most = by_warp[0][threadIdx.x];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) most = __vmaxu2(most, by_warp[w][threadIdx.x]);
      by_warp[0][threadIdx.x] = most;
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kPairs; ++p) of_pair[p] = by_warp[0][pair(p)];
  }
  __device__ __forceinline__ void find_all() {
    __shared__ uint32_t all;
    if (threadIdx.x == 0) all = 0;
    __syncthreads();
    uint32_t most = 0;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) most = __vmaxu2(most, of_pair[p]);
    most = __reduce_max_sync(0xffffffffu, larger_half(most));
    if (threadIdx.x % 32 == 0) atomicMax(&all, most);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) of_row[i] = all;
#pragma unroll
    for (int p = 0; p < kPairs; ++p) of_pair[p] = all | all << 16;
  }
  // The place of a thread's pair among those of the tile.
  static __device__ __forceinline__ int pair(int p) {
    return p / 4 * (kTile / kTileRuns / 2) + TilePlace::group() * 4 + p % 4;
  }
};

template <bool kRows, bool kColumns, bool kSquare, bool kMeasured>
__global__ void __launch_bounds__(kTileThreads)
    quantize_blocks_kernel(__grid_constant__ const Parts parts, unsigned across,
                           __grid_constant__ const BlockTarget to) {
  await_previous();
  const int part = part_of_block(parts, blockIdx.x);
  const TilePlace place = parts.place(part, blockIdx.x, across, to.all_columns);
  const int64_t shift = parts.first_row[part];
  Eight<Bf16> x[kTileRows][kTileRuns];
#pragma unroll
  for (int i = 0; i < kTileRows; ++i)
#pragma unroll
    for (int run = 0; run < kTileRuns; ++run)
      x[i][run] = place.inside(run)
                      ? fetch_eight(parts.x[part] + place.row(i) * place.columns + place.column(run))
                      : Eight<Bf16>{};
  Largest<kRows, kColumns, kSquare> largest;
  largest.find(x);

  TileCodes codes;
  [[maybe_unused]] Vanished vanished;
  if constexpr (kRows) {
    Scale s[kTileRows];
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) {
      s[i] = scale_of(largest.of_row[i]);
#pragma unroll
      for (int run = 0; run < kTileRuns; ++run) {
        codes.code[i][run] = codes_of<DType::E4M3>(x[i][run], s[i].scale);
        if constexpr (kMeasured) vanished.add(x[i][run], codes.code[i][run]);
      }
    }
    store_rows(codes, place, to.rows + shift * to.all_columns, to.all_columns);
    if constexpr (!kSquare)
      if (TilePlace::group() == 0 && place.inside(0))
        *reinterpret_cast<float4*>(to.row_factors + place.first_column / kTile * to.all_rows + shift +
                                   place.row(0)) =
            make_float4(s[0].factor, s[1].factor, s[2].factor, s[3].factor);
  }
  if constexpr (kColumns) {
#pragma unroll
    for (int run = 0; run < kTileRuns; ++run) {
      float scales[8], factors[8];
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const uint32_t pair = largest.of_pair[run * 4 + c / 2];
        const Scale s = scale_of(c % 2 == 0 ? pair & 0xffffu : pair >> 16);
        scales[c] = s.scale;
        factors[c] = s.factor;
      }
#pragma unroll
      for (int i = 0; i < kTileRows; ++i) {
        codes.code[i][run] = codes_of<DType::E4M3>(x[i][run], scales);
        if constexpr (kMeasured && !kRows) vanished.add(x[i][run], codes.code[i][run]);
      }
      if constexpr (!kSquare)
        if (threadIdx.x < 8 && place.inside(run)) {  // one thread for eight columns
          auto* const at = reinterpret_cast<float4*>(
              to.column_factors + (shift + place.first_row) / kTile * to.all_columns + place.column(run));
          at[0] = make_float4(factors[0], factors[1], factors[2], factors[3]);
          at[1] = make_float4(factors[4], factors[5], factors[6], factors[7]);
        }
    }
    __shared__ TransposedTile tile;
    store_columns(codes, place, tile, to.columns + shift, to.all_rows);
  }
  if constexpr (kSquare)
    if (threadIdx.x == 0) {
      const int64_t row = (shift + place.first_row) / kTile, column = place.first_column / kTile;
      const float factor = scale_of(largest.of_row[0]).factor;
      if constexpr (kRows) to.row_factors[row * (to.all_columns / kTile) + column] = factor;
      if constexpr (kColumns) to.column_factors[column * (to.all_rows / kTile) + row] = factor;
    }
  if constexpr (kMeasured) {
    const uint32_t count = __reduce_add_sync(0xffffffffu, vanished.count());
    if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(&to.rounded[2], static_cast<double>(count));
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicAdd(&to.rounded[0], static_cast<double>(to.values));
  }
}

void check_blocks(const QuantizeBlocksArgs& a, const char* what) {
  const auto refuse = [&](const std::string& why) { fail(std::string(what) + ": " + why); };
  if (a.type != DType::BF16 || a.format != DType::E4M3)
    refuse("only bf16 has codes on a GPU, which are E4M3");
  if (a.block != kCodeBlock) refuse("blocks have 128 values on a GPU, not " + std::to_string(a.block));
  if (a.rounded != nullptr && !a.accumulate) refuse("measures are accumulated");
  if (a.codes == nullptr && a.transposed == nullptr) refuse("no place for the codes");
  const bool whole_rows = a.square || a.transposed != nullptr, whole_columns = a.square || a.codes != nullptr;
  if (!all_aligned16(a.codes, a.factors) || !all_aligned16(a.transposed, a.transposed_factors))
    refuse("addresses must be multiples of 16");
  for (const QuantizePart& part : a.parts)
    if (!aligned16(part.x) || part.rows % (whole_rows ? kTile : 16) != 0 ||
        a.columns % (whole_columns ? kTile : 16) != 0)
      refuse(std::to_string(part.rows) + " x " + std::to_string(a.columns) +
             " values: sizes must be multiples of 128, addresses of 16");
}

template <class F>
void with_flag(bool flag, F&& f) {
  if (flag)
    f(std::true_type{});
  else
    f(std::false_type{});
}

}  // namespace

void quantize_blocks(const QuantizeBlocksArgs& args, Stream stream) {
  constexpr const char* kWhat = "quantize_blocks";
  check_blocks(args, kWhat);
  const Parts list = parts_of(args.parts, args.columns, kWhat);
  if (list.blocks() == 0) return;
  const BlockTarget to{.rows = static_cast<uint8_t*>(args.codes),
                       .columns = static_cast<uint8_t*>(args.transposed),
                       .row_factors = static_cast<float*>(args.factors),
                       .column_factors = static_cast<float*>(args.transposed_factors),
                       .all_rows = args.rows,
                       .all_columns = args.columns,
                       .rounded = args.rounded,
                       .values = args.rows * args.columns - args.padding};
  const auto launch = [&](auto in_rows, auto in_columns) {
    with_flag(args.square, [&](auto square) {
      with_flag(args.rounded != nullptr, [&](auto measured) {
        quantize_blocks_kernel<in_rows.value, in_columns.value, square.value, measured.value>
            <<<list.blocks(), kTileThreads, 0, stream>>>(list, tiles_of(args.columns), to);
      });
    });
  };
  if (args.codes != nullptr && args.transposed != nullptr)
    launch(std::true_type{}, std::true_type{});
  else if (args.codes != nullptr)
    launch(std::true_type{}, std::false_type{});
  else
    launch(std::false_type{}, std::true_type{});
  check_launch(kWhat);
}

}  // namespace quintet::kernels::cuda
