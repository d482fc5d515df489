// Packing with AVX-512: k groups of 32 bits (one f32, or two bf16) are transposed 16 x 16 in registers.
// Internal linkage, as generic.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace quintet::kernels {
namespace {

// Transposes: lane j of row[i] goes to lane i of row[j].
inline __attribute__((always_inline)) void transpose_16x16(__m512i (&row)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(row[2 * i], row[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(row[2 * i], row[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    row[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    row[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    row[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    row[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  // Now 128-bit part q of row[4 i + j] holds column 4 q + j of rows 4 i to 4 i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i even0 = _mm512_shuffle_i32x4(row[j], row[4 + j], 0x88);
    const __m512i odd0 = _mm512_shuffle_i32x4(row[j], row[4 + j], 0xdd);
    const __m512i even1 = _mm512_shuffle_i32x4(row[8 + j], row[12 + j], 0x88);
    const __m512i odd1 = _mm512_shuffle_i32x4(row[8 + j], row[12 + j], 0xdd);
    t[j] = _mm512_shuffle_i32x4(even0, even1, 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0x88);
    t[8 + j] = _mm512_shuffle_i32x4(even0, even1, 0xdd);
    t[12 + j] = _mm512_shuffle_i32x4(odd0, odd1, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) row[i] = t[i];
}

inline uint32_t low_bits(int64_t n) { return n >= 32 ? ~0u : n <= 0 ? 0u : (1u << n) - 1u; }

// 16 groups of one row, from element p on; zeros past k.
inline __m512i load_groups(const float* row, int64_t p, int64_t k) {
  return _mm512_maskz_loadu_epi32(static_cast<__mmask16>(low_bits(k - p < 16 ? k - p : 16)), row + p);
}
inline __m512i load_groups(const uint16_t* row, int64_t p, int64_t k) {
  return _mm512_maskz_loadu_epi16(low_bits(k - p), row + p);
}

// The group that starts at k index p, of the rows in `mask`; src points at the first of them, k steps are ld
// apart.
inline __m512i load_across(const float* src, int64_t ld, int64_t p, int64_t, __mmask16 mask) {
  return _mm512_maskz_loadu_epi32(mask, src + p * ld);
}
inline __m512i load_across(const uint16_t* src, int64_t ld, int64_t p, int64_t k, __mmask16 mask) {
  const __m512i first = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, src + p * ld));
  if (p + 1 >= k) return first;
  const __m512i second = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, src + (p + 1) * ld));
  return _mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

template <class T>
inline void prefetch_across(const T* src, int64_t ld, int64_t p) {
  constexpr int kAhead = 16;
  for (int i = 0; i < static_cast<int>(4 / sizeof(T)); ++i) __builtin_prefetch(src + (p + i + kAhead) * ld);
}

// Panels of R rows in groups of 32 bits; R is 32, or at most 16.
template <class T, int R>
void pack_groups(const void* source, int64_t ld, bool k_contiguous, int64_t rows, int64_t k, void* panel) {
  static_assert(R == 32 || R <= 16);
  constexpr int kGroup = 4 / sizeof(T), kWide = R < 16 ? R : 16;
  const T* src = static_cast<const T*>(source);
  int32_t* dst = static_cast<int32_t*>(panel);
  const int64_t groups = (k + kGroup - 1) / kGroup;
  constexpr auto kRowMask = static_cast<__mmask16>((1u << kWide) - 1u);
  for (int first = 0; first < R; first += 16) {
    const int64_t here = rows - first < kWide ? rows - first : kWide;
    // With R < 16 a full store also overwrites the start of the next group, which is written after it; only
    // the last group of the panel must not write past its end.
    const auto store = [&](int64_t g, __m512i v) {
      if (R >= 16 || g + 1 < groups)
        _mm512_storeu_si512(dst + g * R + first, v);
      else
        _mm512_mask_storeu_epi32(dst + g * R + first, kRowMask, v);
    };
    if (here <= 0) {
      for (int64_t g = 0; g < groups; ++g) store(g, _mm512_setzero_si512());
    } else if (k_contiguous) {
      for (int64_t g = 0; g < groups; g += 16) {
        __m512i block[16];
        if (here == kWide) {
#pragma GCC unroll 16
          for (int r = 0; r < 16; ++r)
            block[r] =
                r < kWide ? load_groups(src + (first + r) * ld, g * kGroup, k) : _mm512_setzero_si512();
        } else {
          for (int r = 0; r < 16; ++r)
            block[r] = r < here ? load_groups(src + (first + r) * ld, g * kGroup, k) : _mm512_setzero_si512();
        }
        transpose_16x16(block);
        if (g + 16 < groups) {
#pragma GCC unroll 16
          for (int q = 0; q < 16; ++q) _mm512_storeu_si512(dst + (g + q) * R + first, block[q]);
        } else {
          for (int q = 0; q < groups - g; ++q) store(g + q, block[q]);
        }
      }
    } else {
      const auto mask = static_cast<__mmask16>(low_bits(here));
      for (int64_t g = 0; g < groups; ++g) {
        // Consecutive k are far apart: the hardware prefetcher does not predict these addresses.
        prefetch_across<T>(src + first, ld, g * kGroup);
        store(g, load_across(src + first, ld, g * kGroup, k, mask));
      }
    }
  }
}

// As round_to_bf16_generic.
[[maybe_unused]] void round_to_bf16_avx512(const float* sums, int64_t ld, int64_t rows, int64_t cols,
                                           uint16_t* c, int64_t ldc, bool add) {
  const __m512i half = _mm512_set1_epi32(0x7fff), one = _mm512_set1_epi32(1), quiet = _mm512_set1_epi32(0x40);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; j += 16) {
      const auto mask = static_cast<__mmask16>(low_bits(cols - j < 16 ? cols - j : 16));
      __m512 sum = _mm512_maskz_loadu_ps(mask, sums + i * ld + j);
      uint16_t* to = c + i * ldc + j;
      if (add) {
        const __m512i old = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, to));
        sum = _mm512_add_ps(_mm512_castsi512_ps(_mm512_slli_epi32(old, 16)), sum);
      }
      const __m512i bits = _mm512_castps_si512(sum), upper = _mm512_srli_epi32(bits, 16);
      const __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, half), _mm512_and_si512(upper, one));
      const __mmask16 nan = _mm512_cmp_ps_mask(sum, sum, _CMP_UNORD_Q);
      const __m512i rounded = _mm512_mask_or_epi32(_mm512_srli_epi32(up, 16), nan, upper, quiet);
      _mm256_mask_storeu_epi16(to, mask, _mm512_cvtepi32_epi16(rounded));
    }
}

}  // namespace
}  // namespace quintet::kernels
