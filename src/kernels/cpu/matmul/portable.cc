// Kernels for any processor, in plain C++.
#include "kernels/cpu/matmul/generic.h"
#include "kernels/cpu/matmul/tile.h"

namespace quintet::kernels {
namespace {

using base::DType;

template <class T, int MR, int NR>
void plain_tile(int64_t k, const void* a_panel, const void* b_panel, void* c_tile, int64_t ldc, bool add) {
  const T* a = static_cast<const T*>(a_panel);
  const T* b = static_cast<const T*>(b_panel);
  T* c = static_cast<T*>(c_tile);
  T sums[MR][NR] = {};
  for (int64_t p = 0; p < k; ++p, a += MR, b += NR)
    for (int i = 0; i < MR; ++i)
      for (int j = 0; j < NR; ++j) sums[i][j] += a[i] * b[j];
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < NR; ++j) c[i * ldc + j] = add ? c[i * ldc + j] + sums[i][j] : sums[i][j];
}

template <class Src, class Sum, DType type>
constexpr TileKernel kernel() {
  constexpr TileShape s = tile_shape(GemmIsa::Portable, type);
  return {s,
          sizeof(Sum) == 8 ? DType::F64 : DType::F32,
          pack_generic<Src, Sum, s.mr>,
          pack_generic<Src, Sum, s.nr>,
          plain_tile<Sum, s.mr, s.nr>,
          type == DType::F16 ? round_to_f16_generic : round_to_bf16_generic,
          nullptr,
          nullptr};
}

constexpr TileKernels kKernels = {.f64 = kernel<double, double, DType::F64>(),
                                  .f32 = kernel<float, float, DType::F32>(),
                                  .bf16 = kernel<uint16_t, float, DType::BF16>(),
                                  .f16 = kernel<Half, float, DType::F16>()};

}  // namespace

const TileKernel* portable_kernel(DType type) { return kKernels.of(type); }

}  // namespace quintet::kernels
