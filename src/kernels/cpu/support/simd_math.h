// exp, sigmoid and sin/cos on vectors, by polynomials: Taylor series truncated where the remainder is below
// half an ulp.
#pragma once

#include "kernels/cpu/support/simd.h"

namespace quintet::kernels::cpu::QUINTET_ISA {

template <class S>
struct ExpConstants;
template <>
struct ExpConstants<float> {
  static constexpr float kHigh = 89.0f, kLow = -104.0f;  // beyond: inf, 0
  static constexpr float kLn2High = 0x1.62e0p-1f;        // 12 bits: its product with k is exact
  static constexpr float kLn2Low = 0x1.0bfbe8e7bcd5ep-15;
  static constexpr float kMagic = 0x1.8p23f;  // adding it rounds to an integer
  static constexpr int kBias = 127, kMantissa = 23, kTerms = 7;
};
template <>
struct ExpConstants<double> {
  static constexpr double kHigh = 710.0, kLow = -746.0;
  static constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits
  static constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  static constexpr double kMagic = 0x1.8p52;
  static constexpr int kBias = 1023, kMantissa = 52, kTerms = 13;
};

inline constexpr double kInverseFactorial[] = {1.0,
                                               1.0,
                                               1.0 / 2,
                                               1.0 / 6,
                                               1.0 / 24,
                                               1.0 / 120,
                                               1.0 / 720,
                                               1.0 / 5040,
                                               1.0 / 40320,
                                               1.0 / 362880,
                                               1.0 / 3628800,
                                               1.0 / 39916800,
                                               1.0 / 479001600,
                                               1.0 / 6227020800.0,
                                               1.0 / 87178291200.0,
                                               1.0 / 1307674368000.0,
                                               1.0 / 20922789888000.0,
                                               1.0 / 355687428096000.0,
                                               1.0 / 6402373705728000.0};

// exp(x) to about 1 ulp, with gradual underflow; NaN stays NaN, large x gives inf.
template <class S>
inline Vec<S> exp(Vec<S> x) {
  using C = ExpConstants<S>;
  x = at_least(C::kLow, at_most(C::kHigh, x));
  const Vec<S> magic = splat(C::kMagic);
  const Vec<S> shifted = fma(x, splat(S(0x1.71547652b82fep+0)), magic);
  const Vec<S> k = shifted - magic;
  Vec<S> r = fma(k, splat(-C::kLn2High), x);
  r = fma(k, splat(-C::kLn2Low), r);
  Vec<S> p = splat(S(kInverseFactorial[C::kTerms]));
#pragma GCC unroll 16
  for (int i = C::kTerms - 1; i >= 0; --i) p = fma(p, r, splat(S(kInverseFactorial[i])));
#if defined(__AVX512F__)
  if constexpr (sizeof(S) == 4)
    return _mm512_scalef_ps(p, k);
  else
    return _mm512_scalef_pd(p, k);
#else
  using I = IntVec<S>;
  // 2^k in two steps, because k may be outside the exponent range of normal numbers.
  const I n = bits_as<I>(shifted) - bits_as<I>(magic);
  const I half = n >> 1;
  const Vec<S> first = bits_as<Vec<S> >((half + C::kBias) << C::kMantissa);
  const Vec<S> second = bits_as<Vec<S> >((n - half + C::kBias) << C::kMantissa);
  return p * first * second;
#endif
}

// 1 / d to about 1 ulp for 1 <= d <= 2: where division is slow, a 14-bit estimate and one Newton step.
inline Vec<float> reciprocal(Vec<float> d) {
#if defined(__AVX512F__)
  const Vec<float> r = _mm512_rcp14_ps(d);
  return fma(r, fma(-d, r, splat(1.0f)), r);
#else
  return 1.0f / d;
#endif
}
inline Vec<double> reciprocal(Vec<double> d) { return 1.0 / d; }

// s = 1 / (1 + exp(-z)) and c = 1 - s, each with full relative accuracy.
template <class S>
struct Sigmoid {
  Vec<S> s, c;
};
template <class S>
inline Sigmoid<S> sigmoid(Vec<S> z) {
  // With e = exp(-|z|) <= 1 the larger of the two is 1 / (1 + e) and the smaller e / (1 + e).
  const Vec<S> e = exp<S>(z > S(0) ? -z : z);
  const Vec<S> large = reciprocal(S(1) + e);
  const Vec<S> small = e * large;
  return {z > S(0) ? large : small, z > S(0) ? small : large};
}

struct SinCos {
  Vec<double> sin, cos;
};
// To about 1 ulp for |a| <= 2^20 * pi / 2.
inline SinCos sincos(Vec<double> a) {
  using I = IntVec<double>;
  const Vec<double> magic = splat(0x1.8p52);
  const Vec<double> shifted = fma(a, splat(0x1.45f306dc9c883p-1), magic);
  const Vec<double> k = shifted - magic;
  // pi / 2 in parts of 33 bits, so that products with k are exact with or without fused arithmetic.
  Vec<double> r = fma(k, splat(-0x1.921fb54400000p+0), a);
  r = fma(k, splat(-0x1.0b4611a600000p-34), r);
  r = fma(k, splat(-0x1.3198a2e037073p-69), r);
  const Vec<double> t = r * r;
  Vec<double> s = splat(kInverseFactorial[17]), c = splat(kInverseFactorial[18]);
#pragma GCC unroll 16
  for (int i = 15; i >= 3; i -= 2) s = fma(-s, t, splat(kInverseFactorial[i]));
#pragma GCC unroll 16
  for (int i = 16; i >= 2; i -= 2) c = fma(-c, t, splat(kInverseFactorial[i]));
  s = fma(-s * t, r, r);
  c = fma(-c, t, splat(1.0));
  const I quadrant = bits_as<I>(shifted) - bits_as<I>(magic);
  const I odd = (quadrant & 1) != 0, flip_sin = (quadrant & 2) != 0, flip_cos = ((quadrant + 1) & 2) != 0;
  const Vec<double> sine = odd ? c : s, cosine = odd ? s : c;
  return {flip_sin ? -sine : sine, flip_cos ? -cosine : cosine};
}

}  // namespace quintet::kernels::cpu::QUINTET_ISA
