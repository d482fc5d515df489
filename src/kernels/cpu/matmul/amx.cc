// bf16 kernel for AMX: 2 x 2 tiles of 16 x 16 sums; one instruction covers 32 consecutive k.
#include "kernels/cpu/matmul/generic.h"
#include "kernels/cpu/matmul/tile.h"

#if defined(__AMX_BF16__) && defined(__AVX512BW__)
#include <immintrin.h>

#include "kernels/cpu/matmul/pack_avx512.h"

namespace quintet::kernels {
namespace {

using base::DType;

constexpr TileShape kShape = tile_shape(GemmIsa::Amx, DType::BF16);
static_assert(kShape.mr == 32 && kShape.nr == 32 && kShape.k_a == 32 && kShape.k_b == 2 &&
              kShape.k_step == 32);

// Tiles 0 to 3 hold sums (row half * 2 + column half), 4 and 5 the halves of A's rows, 6 and 7 those of B's
// columns.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kConfig;

void begin() { _tile_loadconfig(&kConfig); }
void end() { _tile_release(); }

// A panel: per 32 k, 32 rows of 64 bytes. B panel: per 2 k, 32 columns of 4 bytes, so a tile's rows are 128
// bytes apart.
void tile(int64_t k, const void* a_panel, const void* b_panel, void* c_tile, int64_t ldc, bool add) {
  const auto* a = static_cast<const uint16_t*>(a_panel);
  const auto* b = static_cast<const uint16_t*>(b_panel);
  auto* c = static_cast<float*>(c_tile);
  float* low = c + 16 * ldc;
  const int64_t stride = ldc * 4;
  if (add) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + 16, stride);
    _tile_loadd(2, low, stride);
    _tile_loadd(3, low + 16, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t p = 0; p < k; p += 32) {
    _tile_loadd(6, b, 128);
    _tile_loadd(4, a, 64);
    _tile_loadd(7, b + 32, 128);
    _tile_loadd(5, a + 16 * 32, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += 32 * 32;
    b += 32 * 32;
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + 16, stride);
  _tile_stored(2, low, stride);
  _tile_stored(3, low + 16, stride);
}

void pack_a(const void* source, int64_t ld, bool k_contiguous, int64_t rows, int64_t k, void* panel) {
  const auto* src = static_cast<const uint16_t*>(source);
  auto* dst = static_cast<uint16_t*>(panel);
  for (int64_t p = 0; p < k; p += 32, dst += 32 * 32) {
    if (k_contiguous) {
      for (int64_t r = 0; r < 32; ++r)
        _mm512_storeu_si512(dst + r * 32,
                            r < rows ? load_groups(src + r * ld, p, k) : _mm512_setzero_si512());
      continue;
    }
    for (int64_t first = 0; first < 32; first += 16) {
      const auto mask = static_cast<__mmask16>(low_bits(rows - first < 16 ? rows - first : 16));
      __m512i pairs[16];
      for (int q = 0; q < 16; ++q)
        pairs[q] = mask != 0 && p + 2 * q < k ? load_across(src + first, ld, p + 2 * q, k, mask)
                                              : _mm512_setzero_si512();
      transpose_16x16(pairs);
      for (int r = 0; r < 16; ++r) _mm512_storeu_si512(dst + (first + r) * 32, pairs[r]);
    }
  }
}

void pack_b(const void* source, int64_t ld, bool k_contiguous, int64_t rows, int64_t k, void* panel) {
  pack_groups<uint16_t, 32>(source, ld, k_contiguous, rows, k, panel);
  const int64_t filled = (k + 1) / 2 * 2, padded = (k + 31) / 32 * 32;
  auto* dst = static_cast<uint16_t*>(panel) + filled * 32;
  for (int64_t i = 0; i < (padded - filled) * 32; i += 32)
    _mm512_storeu_si512(dst + i, _mm512_setzero_si512());
}

constexpr TileKernel kBf16 = {kShape, DType::F32, pack_a, pack_b, tile, round_to_bf16_avx512, begin, end};

}  // namespace

const TileKernel* amx_kernel(DType type) { return type == DType::BF16 ? &kBf16 : avx512_kernel(type); }

}  // namespace quintet::kernels
#else
namespace quintet::kernels {
const TileKernel* amx_kernel(base::DType) { return nullptr; }
}  // namespace quintet::kernels
#endif
