// bf16 kernel for AVX512_BF16: one instruction multiplies two consecutive k and adds both products.
#include "kernels/cpu/matmul/generic.h"
#include "kernels/cpu/matmul/tile.h"

#if defined(__AVX512BF16__)
#include <immintrin.h>

#include "kernels/cpu/matmul/pack_avx512.h"
#include "kernels/cpu/matmul/vector_tile.h"

namespace quintet::kernels {
namespace {

using base::DType;

struct Bf16Unit {
  using Vector = __m512;
  using Element = int32_t;  // Two bf16.
  using Sum = float;
  static constexpr int kLanes = 16;
  static Vector zero() { return _mm512_setzero_ps(); }
  static Vector load(const int32_t* p) { return _mm512_castsi512_ps(_mm512_loadu_si512(p)); }
  static Vector broadcast(const int32_t* p) { return _mm512_castsi512_ps(_mm512_set1_epi32(*p)); }
  static Vector load_sum(const float* p) { return _mm512_loadu_ps(p); }
  static void store_sum(float* p, Vector v) { _mm512_storeu_ps(p, v); }
  static Vector multiply_add(Vector a, Vector b, Vector c) {
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
  }
  static Vector add(Vector a, Vector b) { return _mm512_add_ps(a, b); }
};

constexpr TileShape kShape = tile_shape(GemmIsa::Avx512Bf16, DType::BF16);

void tile(int64_t k, const void* a, const void* b, void* c, int64_t ldc, bool add) {
  vector_tile<Bf16Unit, kShape.mr, kShape.nr / Bf16Unit::kLanes>(k / 2, static_cast<const int32_t*>(a),
                                                                 static_cast<const int32_t*>(b),
                                                                 static_cast<float*>(c), ldc, add);
}

constexpr TileKernel kBf16 = {kShape,
                              DType::F32,
                              pack_groups<uint16_t, kShape.mr>,
                              pack_groups<uint16_t, kShape.nr>,
                              tile,
                              round_to_bf16_avx512,
                              nullptr,
                              nullptr};

}  // namespace

const TileKernel* avx512bf16_kernel(DType type) { return type == DType::BF16 ? &kBf16 : avx512_kernel(type); }

}  // namespace quintet::kernels
#else
namespace quintet::kernels {
const TileKernel* avx512bf16_kernel(base::DType) { return nullptr; }
}  // namespace quintet::kernels
#endif
