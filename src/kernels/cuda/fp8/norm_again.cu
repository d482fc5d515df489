// Codes of an RMSNorm's result, computed again from its statistics.
#include "kernels/cuda/fp8/launch_tiles.cuh"
#include "kernels/cuda/fp8/quantize.h"
#include "kernels/cuda/norm/shape.cuh"

namespace quintet::kernels::cuda {
namespace {

struct NormSource {
  using Loaded = Eight<Bf16>;
  const Bf16 *x, *w;
  const float* rstd;
  int64_t n;
  float offset;
  __device__ __forceinline__ Loaded load(int64_t row, int64_t column) const {
    return fetch_eight(x + row * n + column);
  }
  __device__ __forceinline__ Eight<Bf16> values(const Loaded& in, int64_t row, int64_t column) const {
    const float r = rstd[row];
    const auto weight = cuda::load<8>(w + column);
    auto v = cuda::values<Bf16, 8>(Pack<Bf16, 8>{raw_of(in.w)});
#pragma unroll
    for (int k = 0; k < 8; ++k)
      v.v[k] = weighted<false>(normed<false>(v.v[k], 0.0f, r), weight.v[k] + offset, 0.0f);
    return rounded(v);
  }
};

template <bool kRows, bool kColumns, bool kMeasured>
__global__ void __launch_bounds__(kTileThreads)
    norm_again_kernel(NormSource source, int64_t rows, CodeTarget to) {
  await_previous();
  const TilePlace place{int64_t{blockIdx.y} * kTile, int64_t{blockIdx.x} * kTile, rows, source.n};
  write_codes<base::DType::E4M3, kRows, kColumns, kMeasured>(source, place, 0, to, rows * source.n);
}

}  // namespace

void rmsnorm_again_codes(const Bf16* x, const Bf16* w, const float* rstd, int64_t rows, int64_t n,
                         double offset, const CodeTarget& to, Stream stream) {
  if (rows <= 0 || n <= 0) return;
  constexpr const char* kWhat = "norm codes";
  check_codes(to, rows, n, all_aligned16(x, w), kWhat);
  if (to.format != base::DType::E4M3) fail("norm codes: E4M3 only");
  const dim3 grid(tiles_of(n), tiles_of(rows));
  with_orders(to, kWhat, [&](auto in_rows, auto in_columns, auto measured) {
    norm_again_kernel<in_rows.value, in_columns.value, measured.value>
        <<<grid, kTileThreads, 0, stream>>>(NormSource{x, w, rstd, n, static_cast<float>(offset)}, rows, to);
  });
  check_launch(kWhat);
}

}  // namespace quintet::kernels::cuda
