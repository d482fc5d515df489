// Codes of gated activations and of their gradients.
#include "kernels/cuda/elementwise/gates.cuh"
#include "kernels/cuda/fp8/launch_tiles.cuh"
#include "kernels/cuda/fp8/quantize.h"

namespace quintet::kernels::cuda {
namespace {

using base::DType;

struct Two {
  Eight<Bf16> gate, up;
};
__device__ __forceinline__ Vals<float, 8> wide(const Eight<Bf16>& e) {
  return values<Bf16, 8>(Pack<Bf16, 8>{raw_of(e.w)});
}

// As Gated of elementwise/activation.cu.
template <class A>
struct GatedSource {
  using Loaded = Two;
  const Bf16 *gate, *up;
  int64_t stride;
  __device__ __forceinline__ Loaded load(int64_t row, int64_t column) const {
    const int64_t at = row * stride + column;
    return {fetch_eight(gate + at), fetch_eight(up + at)};
  }
  __device__ __forceinline__ Eight<Bf16> values(const Loaded& in, int64_t, int64_t) const {
    auto g = wide(in.gate);
    const auto u = wide(in.up);
#pragma unroll
    for (int k = 0; k < 8; ++k) g.v[k] = A::template value<Bf16>(g.v[k]) * u.v[k];
    return rounded(g);
  }
};

template <class A, bool kRows, bool kColumns, bool kMeasured>
__global__ void __launch_bounds__(kTileThreads, 2)
    swiglu_codes_kernel(GatedSource<A> source, int64_t rows, int64_t n, CodeTarget to) {
  await_previous();
  const TilePlace place{int64_t{blockIdx.y} * kTile, int64_t{blockIdx.x} * kTile, rows, n};
  write_codes<DType::E4M3, kRows, kColumns, kMeasured>(source, place, 0, to, rows * n);
}

struct Gradients {
  const Bf16 *dy, *gate, *up;
  int64_t stride, rows, n;
};

// As GatedBackward of elementwise/activation.cu.
template <class A, bool kAgain, bool kMeasured>
__global__ void __launch_bounds__(kTileThreads, 2)
    swiglu_backward_codes_kernel(Gradients in, CodeTarget to, CodeTarget again) {
  await_previous();
  __shared__ TransposedTile tile;
  const TilePlace place{int64_t{blockIdx.y} * kTile, int64_t{blockIdx.x} * kTile, in.rows, in.n};
  const float scale = *to.scale, scale_again = kAgain ? *again.scale : 0.0f;
  TileCodes dgate, dup, y;
  [[maybe_unused]] Seen<DType::E5M2> seen;
  constexpr int kAtOnce = 2;  // rows in flight: registers
#pragma unroll
  for (int first = 0; first < kTileRows; first += kAtOnce) {
    Eight<Bf16> d[kAtOnce][kTileRuns], g[kAtOnce][kTileRuns], u[kAtOnce][kTileRuns];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int run = 0; run < kTileRuns; ++run) {
        if (!place.inside(run)) continue;
        const int64_t row = place.row(first + i), column = place.column(run);
        d[i][run] = fetch_eight(in.dy + row * in.n + column);
        g[i][run] = fetch_eight(in.gate + row * in.stride + column);
        u[i][run] = fetch_eight(in.up + row * in.stride + column);
      }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
      for (int run = 0; run < kTileRuns; ++run) {
        if (!place.inside(run)) continue;
        const auto dv = wide(d[i][run]), gv = wide(g[i][run]), uv = wide(u[i][run]);
        Vals<float, 8> to_gate, to_up, value;
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          const Slope<Bf16> act = A::template both<Bf16>(gv.v[k]);
          to_up.v[k] = dv.v[k] * act.value;
          to_gate.v[k] = dv.v[k] * uv.v[k] * act.slope;
          value.v[k] = act.value * uv.v[k];
        }
        const Eight<Bf16> eg = rounded(to_gate), eu = rounded(to_up);
        dgate.code[first + i][run] = codes_of<DType::E5M2>(eg, scale);
        dup.code[first + i][run] = codes_of<DType::E5M2>(eu, scale);
        if constexpr (kMeasured) {
          seen.add(eg, dgate.code[first + i][run], scale);
          seen.add(eu, dup.code[first + i][run], scale);
        }
        if constexpr (kAgain) y.code[first + i][run] = codes_of<DType::E4M3>(rounded(value), scale_again);
      }
  }
  store_rows(dgate, place, to.rows, to.row_stride);
  store_rows(dup, place, to.rows + in.n, to.row_stride);
  store_columns(dgate, place, tile, to.columns, to.column_stride);
  __syncthreads();
  store_columns(dup, place, tile, to.columns + in.n * to.column_stride, to.column_stride);
  if constexpr (kAgain) {
    __syncthreads();
    store_columns(y, place, tile, again.columns, again.column_stride);
  }
  if constexpr (kMeasured) add_measures(seen, to.measures, 2 * in.rows * in.n);
}

template <class F>
void with_gate(Gate act, F&& f) {
  if (act == Gate::GeluTanh)
    f(Gelu{});
  else
    f(Silu{});
}

}  // namespace

void swiglu_codes(const Bf16* gate, const Bf16* up, int64_t in_stride, int64_t rows, int64_t n, Gate act,
                  const CodeTarget& to, Stream stream) {
  if (rows <= 0 || n <= 0) return;
  constexpr const char* kWhat = "swiglu codes";
  check_codes(to, rows, n, in_stride % 8 == 0 && all_aligned16(gate, up), kWhat);
  if (to.format != DType::E4M3) fail("swiglu codes: E4M3 only");
  const dim3 grid(tiles_of(n), tiles_of(rows));
  with_gate(act, [&]<class A>(A) {
    with_orders(to, kWhat, [&](auto in_rows, auto in_columns, auto measured) {
      swiglu_codes_kernel<A, in_rows.value, in_columns.value, measured.value>
          <<<grid, kTileThreads, 0, stream>>>(GatedSource<A>{gate, up, in_stride}, rows, n, to);
    });
  });
  check_launch(kWhat);
}

void swiglu_backward_codes(const Bf16* dy, const Bf16* gate, const Bf16* up, int64_t in_stride, int64_t rows,
                           int64_t n, Gate act, const CodeTarget& gradients, const CodeTarget& again,
                           Stream stream) {
  if (rows <= 0 || n <= 0) return;
  constexpr const char* kWhat = "swiglu gradient codes";
  check_codes(gradients, rows, n, in_stride % 8 == 0 && all_aligned16(dy, gate, up), kWhat);
  check_codes(again, rows, n, true, kWhat);
  if (gradients.format != DType::E5M2 || again.format != DType::E4M3 || gradients.rows == nullptr ||
      gradients.columns == nullptr || again.rows != nullptr || again.measures.amax != nullptr)
    fail("swiglu gradient codes: gradients must be E5M2 in both orders, the forward result E4M3 transposed");
  const dim3 grid(tiles_of(n), tiles_of(rows));
  with_gate(act, [&]<class A>(A) {
    const Gradients in{dy, gate, up, in_stride, rows, n};
    with_orders(gradients, kWhat, [&](auto, auto, auto measured) {
      if (again.columns != nullptr)
        swiglu_backward_codes_kernel<A, true, measured.value>
            <<<grid, kTileThreads, 0, stream>>>(in, gradients, again);
      else
        swiglu_backward_codes_kernel<A, false, measured.value>
            <<<grid, kTileThreads, 0, stream>>>(in, gradients, again);
    });
  });
  check_launch(kWhat);
}

}  // namespace quintet::kernels::cuda
