// Vectors of double or float as wide as the instruction set this file is compiled for, with loads and stores
// that convert from and to the element types. Included by *.inc files only, inside a build for one
// instruction set: everything here lives in that set's namespace, so that the linker never mixes the builds.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/support/types.h"

#ifndef QUINTET_ISA
#error "simd.h is for the per-instruction-set builds of *.inc"
#endif

namespace quintet::kernels::cpu::QUINTET_ISA {

#if defined(__AVX512F__)
inline constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kVectorBytes = 32;
#else
inline constexpr int kVectorBytes = 16;
#endif

// A vector of n elements of E.
template <class E, int n>
struct VectorType {
  typedef E type __attribute__((vector_size(n * sizeof(E))));
};
template <class E, int n>
using VectorN = typename VectorType<E, n>::type;

template <class S>
inline constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(S));
template <class S>
using Vec = VectorN<S, kLanes<S>>;
template <class S>
using IntOf = std::conditional_t<sizeof(S) == 8, int64_t, int32_t>;
template <class S>
using IntVec = VectorN<IntOf<S>, kLanes<S>>;

// A full vector, known at compile time; the tail of a range passes an int instead.
template <class S>
using Full = std::integral_constant<int, kLanes<S>>;

template <class S>
inline Vec<S> splat(S value) {
  return Vec<S>{} + value;
}

template <class To, class From>
inline To bits_as(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To out;
  std::memcpy(&out, &v, sizeof(To));
  return out;
}

template <class V>
inline V read(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof(V));
  return v;
}

// n bfloat16 from n floats, exactly as base::Bf16 rounds.
template <int n>
inline VectorN<uint16_t, n> round_bf16(VectorN<float, n> v) {
  using U = VectorN<uint32_t, n>;
  const U u = bits_as<U>(v);
  const U rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const U quiet = (u >> 16) | 0x40u;
  const U out = v != v ? quiet : rounded;
#if defined(__AVX512F__)
  if constexpr (n == 16)
    return bits_as<VectorN<uint16_t, 16>>(_mm512_cvtepi32_epi16(bits_as<__m512i>(out)));
  else
    return __builtin_convertvector(out, VectorN<uint16_t, n>);
#else
  return __builtin_convertvector(out, VectorN<uint16_t, n>);
#endif
}

// n f16 from n floats, exactly as base::F16 rounds.
template <int n>
inline VectorN<uint16_t, n> round_f16(VectorN<float, n> v) {
#if defined(__F16C__)
#if defined(__AVX512F__)
  if constexpr (n == 16) return bits_as<VectorN<uint16_t, 16>>(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#endif
  if constexpr (n == 8) return bits_as<VectorN<uint16_t, 8>>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  if constexpr (n == 4) {
    const __m128i h = _mm_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    return read<VectorN<uint16_t, 4>>(&h);
  }
#else
  VectorN<uint16_t, n> out;
  for (int i = 0; i < n; ++i) out[i] = F16(v[i]).bits;
  return out;
#endif
}

// Doubles to floats, rounded to odd: rounding further to fewer bits then gives the same as rounding once.
template <int n>
inline VectorN<float, n> round_to_odd(VectorN<double, n> v) {
  using I = VectorN<int32_t, n>;
  const VectorN<float, n> nearest = __builtin_convertvector(v, VectorN<float, n>);
  const VectorN<double, n> back = __builtin_convertvector(nearest, VectorN<double, n>);
  const I inexact = __builtin_convertvector(back != v, I);
  const I outward = __builtin_convertvector(v < 0.0 ? back < v : back > v, I);
  // Comparisons give -1 for true: one step towards zero where rounding went away from it, then the last bit
  // is set.
  return bits_as<VectorN<float, n>>((bits_as<I>(nearest) + outward) | (inexact & 1));
}

template <int n>
inline VectorN<float, n> widen_bf16(const Bf16* p) {
#if defined(__AVX512F__)
  if constexpr (n == 16)
    return bits_as<VectorN<float, 16>>(_mm512_slli_epi32(_mm512_cvtepu16_epi32(read<__m256i>(p)), 16));
#endif
  const auto u = __builtin_convertvector((read<VectorN<uint16_t, n>>(p)), VectorN<uint32_t, n>) << 16;
  return bits_as<VectorN<float, n>>(u);
}

template <int n>
inline VectorN<float, n> widen_f16(const F16* p) {
#if defined(__F16C__)
#if defined(__AVX512F__)
  if constexpr (n == 16) return _mm512_cvtph_ps(read<__m256i>(p));
#endif
  if constexpr (n == 8) return _mm256_cvtph_ps(read<__m128i>(p));
  if constexpr (n == 4) return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  VectorN<float, n> out;
  for (int i = 0; i < n; ++i) out[i] = static_cast<float>(p[i]);
  return out;
#endif
}

// kLanes<S> elements from p, converted to S.
template <class S, class T>
inline Vec<S> load(const T* p, Full<S> = {}) {
  constexpr int n = kLanes<S>;
  if constexpr (std::is_same_v<T, S>) {
    return read<Vec<S>>(p);
  } else if constexpr (std::is_same_v<T, Bf16>) {
    if constexpr (std::is_same_v<S, float>)
      return widen_bf16<n>(p);
    else
      return __builtin_convertvector(widen_bf16<n>(p), Vec<S>);
  } else if constexpr (std::is_same_v<T, F16>) {
    if constexpr (std::is_same_v<S, float>)
      return widen_f16<n>(p);
    else
      return __builtin_convertvector(widen_f16<n>(p), Vec<S>);
  } else {
    return __builtin_convertvector((read<VectorN<T, n>>(p)), Vec<S>);
  }
}

// The first `count` elements from p, then zeros.
template <class S, class T>
inline Vec<S> load(const T* p, int count) {
  T buffer[kLanes<S>] = {};
  std::memcpy(static_cast<void*>(buffer), p, sizeof(T) * static_cast<size_t>(count));
  return load<S>(buffer);
}

template <class S, class T>
inline void store(T* p, Vec<S> v, Full<S> = {}) {
  constexpr int n = kLanes<S>;
  if constexpr (std::is_same_v<T, S>) {
    std::memcpy(p, &v, sizeof(v));
  } else if constexpr (std::is_same_v<T, Bf16>) {
    VectorN<uint16_t, n> h;
    if constexpr (std::is_same_v<S, float>)
      h = round_bf16<n>(v);
    else
      h = round_bf16<n>(round_to_odd<n>(v));
    std::memcpy(static_cast<void*>(p), &h, sizeof(h));
  } else if constexpr (std::is_same_v<T, F16>) {
    VectorN<uint16_t, n> h;
    if constexpr (std::is_same_v<S, float>)
      h = round_f16<n>(v);
    else
      h = round_f16<n>(round_to_odd<n>(v));
    std::memcpy(static_cast<void*>(p), &h, sizeof(h));
  } else {
    const auto out = __builtin_convertvector(v, VectorN<T, n>);
    std::memcpy(p, &out, sizeof(out));
  }
}

template <class S, class T>
inline void store(T* p, Vec<S> v, int count) {
  T buffer[kLanes<S>];
  store<S>(buffer, v);
  std::memcpy(static_cast<void*>(p), buffer, sizeof(T) * static_cast<size_t>(count));
}

// a * b + c, fused where the set has FMA.
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}
inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_pd(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_pd(a, b, c);
#else
  return a * b + c;
#endif
}

inline Vec<float> sqrt(Vec<float> a) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(a);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(a);
#else
  return _mm_sqrt_ps(a);
#endif
}
inline Vec<double> sqrt(Vec<double> a) {
#if defined(__AVX512F__)
  return _mm512_sqrt_pd(a);
#elif defined(__AVX2__)
  return _mm256_sqrt_pd(a);
#else
  return _mm_sqrt_pd(a);
#endif
}

// a unless b is smaller (larger), so that a NaN in b propagates.
inline Vec<float> at_most(float a, Vec<float> b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(splat(a), b);
#else
  return b > a ? splat(a) : b;
#endif
}
inline Vec<double> at_most(double a, Vec<double> b) { return b > a ? splat(a) : b; }
inline Vec<float> at_least(float a, Vec<float> b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(splat(a), b);
#else
  return b < a ? splat(a) : b;
#endif
}
inline Vec<double> at_least(double a, Vec<double> b) { return b < a ? splat(a) : b; }

// The larger of each pair; NaN if either is.
template <class S>
inline Vec<S> max_nan(Vec<S> a, Vec<S> b) {
  return (b > a) | (b != b) ? b : a;
}

// The lower or upper half of a vector, in registers.
template <class E, int n>
inline VectorN<E, n / 2> half_of(VectorN<E, n> v, std::integral_constant<bool, false>) {
  VectorN<E, n / 2> out;
  std::memcpy(&out, &v, sizeof(out));
  return out;
}
template <class E, int n>
inline VectorN<E, n / 2> half_of(VectorN<E, n> v, std::integral_constant<bool, true>) {
  if constexpr (n == 16)
    return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  else if constexpr (n == 8)
    return __builtin_shufflevector(v, v, 4, 5, 6, 7);
  else
    return __builtin_shufflevector(v, v, 2, 3);
}

// Folds the lanes by halves with f: a fixed tree.
template <class E, int n, class F>
inline E fold_lanes(VectorN<E, n> v, F f) {
  if constexpr (n == 2)
    return f(v[0], v[1]);
  else
    return fold_lanes<E, n / 2>(f(half_of<E, n>(v, std::false_type{}), half_of<E, n>(v, std::true_type{})),
                                f);
}

template <class S>
inline S sum_lanes(Vec<S> v) {
  return fold_lanes<S, kLanes<S>>(v, [](auto a, auto b) { return a + b; });
}

// The largest lane; NaN if any lane is.
template <class S>
inline S max_lanes_nan(Vec<S> v) {
  S lane[kLanes<S>];
  std::memcpy(lane, &v, sizeof(v));
  S best = lane[0];
  for (int i = 1; i < kLanes<S>; ++i) best = (lane[i] > best || lane[i] != lane[i]) ? lane[i] : best;
  return best;
}

// The largest lane; if some are NaN, any lane.
template <class S>
inline S max_lanes(Vec<S> v) {
  return fold_lanes<S, kLanes<S>>(v, [](auto a, auto b) { return a > b ? a : b; });
}

template <class S>
inline IntVec<S> lane_index() {
  IntVec<S> v;
  for (int i = 0; i < kLanes<S>; ++i) v[i] = i;
  return v;
}

// Calls f(i, count) over [0, n) by vectors; count is Full<S> except in the tail.
template <class S, class F>
inline void each(int64_t n, F&& f) {
  constexpr int w = kLanes<S>;
  int64_t i = 0;
  for (; i + w <= n; i += w) f(i, Full<S>{});
  if (i < n) f(i, static_cast<int>(n - i));
}

// The sum over [0, n) of f(i, count), whose lanes past count must be zero. Four accumulators hide the latency
// of addition; the order depends on n alone.
template <class S, class F>
inline S sum_each(int64_t n, F&& f) {
  constexpr int w = kLanes<S>;
  Vec<S> a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * w <= n; i += 4 * w) {
    a += f(i, Full<S>{});
    b += f(i + w, Full<S>{});
    c += f(i + 2 * w, Full<S>{});
    d += f(i + 3 * w, Full<S>{});
  }
  for (; i + w <= n; i += w) a += f(i, Full<S>{});
  if (i < n) b += f(i, static_cast<int>(n - i));
  return sum_lanes<S>((a + b) + (c + d));
}

// Pairwise sum of n doubles: the error grows with log n.
inline double sum_pairwise(const double* x, int64_t n) {
  if (n <= 8) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i];
    return sum;
  }
  return sum_pairwise(x, n / 2) + sum_pairwise(x + n / 2, n - n / 2);
}

// Rows per parallel range, so that a range is worth waking a thread.
inline int64_t row_grain(int64_t n) {
  const int64_t g = 8192 / (n > 0 ? n : 1);
  return g > 0 ? g : 1;
}

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace quintet::kernels::cpu::QUINTET_ISA
