#include "base/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace quintet::base {
namespace {

// The definition, in exact arithmetic: sign, exponent and mantissa of a code.
double value_of(uint8_t code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, sign = code >> 7;
  const int exponent = (code & 0x7f) >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
  const double fraction = static_cast<double>(mantissa) / (1 << mantissa_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return sign ? -magnitude : magnitude;
}

// Finite numbers of a format in ascending order of their codes, from 0 on.
template <class F>
std::vector<double> positive_numbers(int exponent_bits, int mantissa_bits, uint8_t largest) {
  std::vector<double> all;
  for (int code = 0; code <= largest; ++code)
    all.push_back(value_of(static_cast<uint8_t>(code), exponent_bits, mantissa_bits));
  return all;
}

template <class F>
F from_bits(int bits) {
  F f;
  f.bits = static_cast<uint8_t>(bits);
  return f;
}

template <class F>
void check_codes(int exponent_bits, int mantissa_bits, uint8_t largest) {
  for (int code = 0; code < 256; ++code) {
    const float decoded = static_cast<float>(from_bits<F>(code));
    if ((code & 0x7f) > largest) {
      if (mantissa_bits == 2 && (code & 0x7f) == 0x7c)
        EXPECT_TRUE(std::isinf(decoded)) << code;
      else
        EXPECT_TRUE(std::isnan(decoded)) << code;
      continue;
    }
    EXPECT_EQ(decoded, value_of(static_cast<uint8_t>(code), exponent_bits, mantissa_bits)) << code;
    EXPECT_EQ(std::signbit(decoded), code >= 128) << code;
    EXPECT_EQ(F(decoded).bits, code);
  }
}

// Every number, every midpoint and its neighbours, and what lies past the ends.
template <class F>
void check_rounding(const FloatFormat& format, int exponent_bits, int mantissa_bits, uint8_t largest) {
  const std::vector<double> numbers = positive_numbers<F>(exponent_bits, mantissa_bits, largest);
  ASSERT_EQ(numbers.back(), format.largest);
  const auto expect = [&](double x, int code) {
    for (const double sign : {1.0, -1.0}) {
      const auto f = static_cast<float>(sign * x);
      const int signed_code = code | (sign < 0 ? 0x80 : 0);
      EXPECT_EQ(F(f).bits, signed_code) << f;
      EXPECT_EQ(round_to(f, format), static_cast<float>(from_bits<F>(signed_code))) << f;
      EXPECT_EQ(round_to(sign * x, format),
                static_cast<double>(static_cast<float>(from_bits<F>(signed_code))))
          << sign * x;
      EXPECT_EQ(std::signbit(round_to(sign * x, format)), sign < 0);
    }
  };
  for (int code = 0; code < largest; ++code) {
    const double low = numbers[static_cast<size_t>(code)], high = numbers[static_cast<size_t>(code) + 1];
    const double middle = (low + high) / 2;  // exact in f32
    ASSERT_EQ(static_cast<double>(static_cast<float>(middle)), middle);
    expect(low, code);
    expect(middle, code % 2 == 0 ? code : code + 1);
    expect(std::nextafter(static_cast<float>(middle), 0.0f), code);
    expect(std::nextafter(static_cast<float>(middle), 1e9f), code + 1);
    EXPECT_EQ(round_to(std::nextafter(middle, 0.0), format), low);
    EXPECT_EQ(round_to(std::nextafter(middle, 1e9), format), high);
  }
  for (const double x : {format.largest, format.largest * 1.02, format.largest * 2, 1e30,
                         static_cast<double>(std::numeric_limits<float>::infinity())})
    expect(x, largest);
  expect(std::numeric_limits<float>::denorm_min(), 0);
  EXPECT_TRUE(std::isnan(static_cast<float>(F(std::nanf("")))));
  EXPECT_TRUE(std::isnan(static_cast<float>(F(-std::nanf("")))));
  EXPECT_TRUE(std::isnan(round_to(std::nan(""), format)));
  EXPECT_TRUE(std::isnan(round_to(std::nanf(""), format)));
}

TEST(Fp8, EveryCodeOfE4M3) { check_codes<E4M3>(4, 3, 0x7e); }
TEST(Fp8, EveryCodeOfE5M2) { check_codes<E5M2>(5, 2, 0x7b); }
TEST(Fp8, E4M3RoundsToNearestEvenAndSaturates) { check_rounding<E4M3>(kE4M3, 4, 3, 0x7e); }
TEST(Fp8, E5M2RoundsToNearestEvenAndSaturates) { check_rounding<E5M2>(kE5M2, 5, 2, 0x7b); }

// Every f32 of a few exponents around the formats' ranges, against the definition of rounding by search.
template <class F>
void sweep(const FloatFormat& format) {
  for (uint32_t u = 0; u < 0x7f800000u;
       u += 9973) {  // a prime: all mantissa patterns of 3 bits and their ties
    const float x = std::bit_cast<float>(u);
    const float rounded = static_cast<float>(F(x));
    ASSERT_EQ(rounded, round_to(x, format)) << x;
    ASSERT_EQ(rounded, static_cast<float>(round_to(static_cast<double>(x), format))) << x;
  }
}
TEST(Fp8, CodesAndGridAgreeOverAllFloats) {
  sweep<E4M3>(kE4M3);
  sweep<E5M2>(kE5M2);
}

TEST(Fp8, E2M1HasSixteenNumbers) {
  for (const double x : {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0}) EXPECT_EQ(round_to(x, kE2M1), x);
  EXPECT_EQ(round_to(0.25, kE2M1), 0.0);
  EXPECT_EQ(round_to(0.75, kE2M1), 1.0);
  EXPECT_EQ(round_to(1.25, kE2M1), 1.0);
  EXPECT_EQ(round_to(2.5, kE2M1), 2.0);
  EXPECT_EQ(round_to(3.5f, kE2M1), 4.0f);
  EXPECT_EQ(round_to(5.0f, kE2M1), 4.0f);
  EXPECT_EQ(round_to(-100.0f, kE2M1), -6.0f);
}

}  // namespace
}  // namespace quintet::base
