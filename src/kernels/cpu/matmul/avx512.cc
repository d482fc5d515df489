// Kernels for AVX-512 (F, BW, DQ, VL). bf16 and f16 operands are widened while they are packed.
#include "kernels/cpu/matmul/generic.h"
#include "kernels/cpu/matmul/tile.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
#include <immintrin.h>

#include "kernels/cpu/matmul/pack_avx512.h"
#include "kernels/cpu/matmul/vector_kernel.h"

namespace quintet::kernels {
namespace {

using base::DType;

struct F32Unit {
  using Vector = __m512;
  using Element = float;
  using Sum = float;
  static constexpr int kLanes = 16;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const float* p) { return _mm512_loadu_ps(p); }
  static Vector broadcast(const float* p) { return _mm512_set1_ps(*p); }
  static Vector load_sum(const float* p) { return _mm512_loadu_ps(p); }
  static void store_sum(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
};

struct F64Unit {
  using Vector = __m512d;
  using Element = double;
  using Sum = double;
  static constexpr int kLanes = 8;
  static Vector zero() { return _mm512_setzero_pd(); }
  static Vector load(const double* p) { return _mm512_loadu_pd(p); }
  static Vector broadcast(const double* p) { return _mm512_set1_pd(*p); }
  static Vector load_sum(const double* p) { return _mm512_loadu_pd(p); }
  static void store_sum(double* p, Vector v) { _mm512_storeu_pd(p, v); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm512_fmadd_pd(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm512_add_pd(a, b); }
};

template <class Src, class Unit, DType type>
constexpr TileKernel kernel() {
  return vector_kernel<GemmIsa::Avx512, Src, Unit, type>(round_to_bf16_avx512);
}
constexpr TileKernel f32_kernel() {
  TileKernel k = kernel<float, F32Unit, DType::F32>();
  constexpr TileShape s = tile_shape(GemmIsa::Avx512, DType::F32);
  k.pack_a = pack_groups<float, s.mr>;
  k.pack_b = pack_groups<float, s.nr>;
  return k;
}

constexpr TileKernels kKernels = {.f64 = kernel<double, F64Unit, DType::F64>(),
                                  .f32 = f32_kernel(),
                                  .bf16 = kernel<uint16_t, F32Unit, DType::BF16>(),
                                  .f16 = kernel<Half, F32Unit, DType::F16>()};

}  // namespace

const TileKernel* avx512_kernel(DType type) { return kKernels.of(type); }

}  // namespace quintet::kernels
#else
namespace quintet::kernels {
const TileKernel* avx512_kernel(base::DType) { return nullptr; }
}  // namespace quintet::kernels
#endif
