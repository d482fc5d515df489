// Parts of the tile kernels in plain C++, for the files that are compiled per instruction set. Everything
// here has internal linkage: each of those files gets its own copy, compiled with its own flags.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include <cstdint>

namespace quintet::kernels {
namespace {

// bf16 as bits, so that no inline function with external linkage is compiled here.
[[maybe_unused]] inline float widen(uint16_t bits) {
  const uint32_t u = static_cast<uint32_t>(bits) << 16;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}
// f16 as bits, with the rounding of base::F16.
struct Half {
  uint16_t bits;
};
[[maybe_unused]] inline float widen(Half h) {
#if defined(__F16C__)
  return _cvtsh_ss(h.bits);
#else
  const uint32_t sign = (h.bits & 0x8000u) << 16, a = h.bits & 0x7fffu;
  const float small = static_cast<float>(static_cast<int32_t>(a)) * 0x1p-24f;
  uint32_t bits_of_small;
  __builtin_memcpy(&bits_of_small, &small, 4);
  const uint32_t normal = (a << 13) + (112u << 23),
                 special = 0x7f800000u | a << 13 | (a > 0x7c00u ? 0x400000u : 0u);
  const uint32_t u = sign | (a < 0x400u ? bits_of_small : a < 0x7c00u ? normal : special);
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
#endif
}
[[maybe_unused]] inline uint16_t round_to_half(float f) {
#if defined(__F16C__)
  return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT);
#else
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  const uint32_t sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
  const float shifted = __builtin_fabsf(f) + 0.5f;
  uint32_t small;
  __builtin_memcpy(&small, &shifted, 4);
  small -= 0x3f000000u;
  const uint32_t normal = (a - (112u << 23) + 0xfffu + (a >> 13 & 1u)) >> 13,
                 special = a > 0x7f800000u ? 0x7e00u | (a >> 13 & 0x3ffu) : 0x7c00u;
  return static_cast<uint16_t>(sign | (a >= 0x477ff000u ? special : a < 0x38800000u ? small : normal));
#endif
}
[[maybe_unused]] inline float widen(float f) { return f; }
[[maybe_unused]] inline double widen(double d) { return d; }

// Packs any source into panels of R rows with k in single steps, in the type of the sums.
template <class Src, class Dst, int R>
void pack_generic(const void* source, int64_t ld, bool k_contiguous, int64_t rows, int64_t k, void* panel) {
  const Src* src = static_cast<const Src*>(source);
  Dst* dst = static_cast<Dst*>(panel);
  if (rows < R)
    for (int64_t i = 0; i < k * R; ++i) dst[i] = 0;
  if (k_contiguous) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t p = 0; p < k; ++p) dst[p * R + r] = widen(src[r * ld + p]);
  } else if (rows == R) {
    for (int64_t p = 0; p < k; ++p) {
      // Consecutive k are far apart: the hardware prefetcher does not predict these addresses.
      for (int r = 0; r < R; r += static_cast<int>(64 / sizeof(Src)))
        __builtin_prefetch(src + (p + 16) * ld + r);
      for (int r = 0; r < R; ++r) dst[p * R + r] = widen(src[p * ld + r]);
    }
  } else {
    for (int64_t p = 0; p < k; ++p)
      for (int64_t r = 0; r < rows; ++r) dst[p * R + r] = widen(src[p * ld + r]);
  }
}

// Round to nearest even, NaN stays NaN: the same bits as base::Bf16, without a branch so that it vectorises.
[[maybe_unused]] void round_to_bf16_generic(const float* sums, int64_t ld, int64_t rows, int64_t cols,
                                            uint16_t* c, int64_t ldc, bool add) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = sums + i * ld;
    uint16_t* to = c + i * ldc;
    for (int64_t j = 0; j < cols; ++j) {
      const float f = add ? widen(to[j]) + from[j] : from[j];
      uint32_t u;
      __builtin_memcpy(&u, &f, 4);
      const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, nan = (u >> 16) | 0x40u;
      to[j] = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
  }
}

// The same to f16.
[[maybe_unused]] void round_to_f16_generic(const float* sums, int64_t ld, int64_t rows, int64_t cols,
                                           uint16_t* c, int64_t ldc, bool add) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = sums + i * ld;
    uint16_t* to = c + i * ldc;
    for (int64_t j = 0; j < cols; ++j) to[j] = round_to_half(add ? widen(Half{to[j]}) + from[j] : from[j]);
  }
}

}  // namespace
}  // namespace quintet::kernels
