// Kernels for AVX2 with FMA. bf16 and f16 operands are widened while they are packed.
#include "kernels/cpu/matmul/generic.h"
#include "kernels/cpu/matmul/tile.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>

#include "kernels/cpu/matmul/vector_kernel.h"

namespace quintet::kernels {
namespace {

using base::DType;

struct F32Unit {
  using Vector = __m256;
  using Element = float;
  using Sum = float;
  static constexpr int kLanes = 8;
  static Vector zero() { return _mm256_setzero_ps(); }
  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector broadcast(const float* p) { return _mm256_broadcast_ss(p); }
  static Vector load_sum(const float* p) { return _mm256_loadu_ps(p); }
  static void store_sum(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
};

struct F64Unit {
  using Vector = __m256d;
  using Element = double;
  using Sum = double;
  static constexpr int kLanes = 4;
  static Vector zero() { return _mm256_setzero_pd(); }
  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static Vector broadcast(const double* p) { return _mm256_broadcast_sd(p); }
  static Vector load_sum(const double* p) { return _mm256_loadu_pd(p); }
  static void store_sum(double* p, Vector v) { _mm256_storeu_pd(p, v); }
  static Vector multiply_add(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }
  static Vector add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
};

template <class Src, class Unit, DType type>
constexpr TileKernel kernel() {
  return vector_kernel<GemmIsa::Avx2, Src, Unit, type>(round_to_bf16_generic);
}

constexpr TileKernels kKernels = {.f64 = kernel<double, F64Unit, DType::F64>(),
                                  .f32 = kernel<float, F32Unit, DType::F32>(),
                                  .bf16 = kernel<uint16_t, F32Unit, DType::BF16>(),
                                  .f16 = kernel<Half, F32Unit, DType::F16>()};

}  // namespace

const TileKernel* avx2_kernel(DType type) { return kKernels.of(type); }

}  // namespace quintet::kernels
#else
namespace quintet::kernels {
const TileKernel* avx2_kernel(base::DType) { return nullptr; }
}  // namespace quintet::kernels
#endif
