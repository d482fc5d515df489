// Floating-point formats of 8 bits and fewer: the codes that are stored, and the grid of numbers that they
// stand for. Rounding is to nearest even; magnitudes above the largest number become it (infinity too), NaN
// stays NaN. The conversions have the bits of CUDA's saturating conversions (__NV_SATFINITE).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"

namespace quintet::base {

// Numbers of the format: sign x 2^e x (1 + i / 2^mantissa) for e >= min_exponent, and multiples of
// 2^(min_exponent - mantissa) below that, up to `largest`.
struct FloatFormat {
  int mantissa;      // bits
  int min_exponent;  // of normal numbers
  double largest;
};
inline constexpr FloatFormat kE4M3{3, -6, 448}, kE5M2{2, -14, 57344}, kE2M1{1, 0, 6};

constexpr bool is_fp8(DType t) { return t == DType::E4M3 || t == DType::E5M2; }
constexpr const FloatFormat& format_of(DType t) { return t == DType::E5M2 ? kE5M2 : kE4M3; }

// The nearest number of the format, for T = float or double. Selects instead of branches, so that compilers
// can vectorise it.
template <class T>
[[gnu::always_inline]] inline T round_to(T x, FloatFormat f) {
  using U = std::conditional_t<std::is_same_v<T, double>, uint64_t, uint32_t>;
  constexpr int kMantissa = std::is_same_v<T, double> ? 52 : 23,
                kBias = std::is_same_v<T, double> ? 1023 : 127;
  const T magnitude = std::abs(x), largest = static_cast<T>(f.largest);
  const T a = magnitude > largest ? largest : magnitude;
  const int drop = kMantissa - f.mantissa;
  const U u = std::bit_cast<U>(a), half = (U{1} << (drop - 1)) - 1;
  const T normal = std::bit_cast<T>(static_cast<U>((u + half + (u >> drop & 1)) >> drop << drop));
  // One ulp of this number is the subnormal step: the addition rounds to it.
  const T step =
      std::bit_cast<T>(static_cast<U>(f.min_exponent - f.mantissa + kMantissa + kBias) << kMantissa);
  const T least = std::bit_cast<T>(static_cast<U>(f.min_exponent + kBias) << kMantissa);
  const T rounded = std::copysign(a < least ? (a + step) - step : normal, x);
  return std::isnan(x) ? x : rounded;
}

// A number as a code: a sign bit, exponent bits, `Mantissa` bits.
template <int Mantissa, uint8_t Largest, uint8_t Nan>
struct Fp8 {
  static constexpr int kBias = Mantissa == 3 ? 7 : 15;
  uint8_t bits = 0;
  Fp8() = default;
  explicit Fp8(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x), a = u & 0x7fffffffu;
    constexpr int kDrop = 23 - Mantissa;
    constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23, kHalf = (1u << (kDrop - 1)) - 1;
    constexpr uint32_t kMost = (static_cast<uint32_t>(Largest) << kDrop) + kRebias;
    constexpr uint32_t kStep = static_cast<uint32_t>(1 - kBias - Mantissa + 23 + 127) << 23;
    const uint32_t finite = a < kMost ? a : kMost;
    const uint32_t normal = (finite - kRebias + kHalf + (finite >> kDrop & 1u)) >> kDrop;
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(finite) + std::bit_cast<float>(kStep)) - kStep;
    const uint32_t code = finite < kRebias + (1u << 23) ? small : normal;
    bits = static_cast<uint8_t>((u >> 24 & 0x80u) | (a > 0x7f800000u ? uint32_t{Nan} : code));
  }
  explicit operator float() const {
    constexpr int kDrop = 23 - Mantissa;
    constexpr float kSubnormal =
        std::bit_cast<float>(static_cast<uint32_t>(1 - kBias - Mantissa + 127) << 23);
    const uint32_t sign = (bits & 0x80u) << 24, a = bits & 0x7fu;
    const uint32_t small = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(a)) * kSubnormal);
    const uint32_t normal = (a << kDrop) + (static_cast<uint32_t>(127 - kBias) << 23);
    const uint32_t number = a < (1u << Mantissa) ? small : a <= Largest ? normal : 0x7fc00000u;
    const bool infinite = Mantissa == 2 && a == 0x7cu;  // E5M2 has infinities, which are never written
    return std::bit_cast<float>(sign | (infinite ? 0x7f800000u : number));
  }
};
using E4M3 = Fp8<3, 0x7e, 0x7f>;
using E5M2 = Fp8<2, 0x7b, 0x7f>;

template <>
struct DTypeOf<E4M3> {
  static constexpr DType value = DType::E4M3;
};
template <>
struct DTypeOf<E5M2> {
  static constexpr DType value = DType::E5M2;
};

}  // namespace quintet::base
