#include "base/f16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quintet::base {
namespace {

// The value of the bits, by the definition of the format.
double meaning(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31)
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

F16 with_bits(uint32_t bits) {
  F16 h;
  h.bits = static_cast<uint16_t>(bits);
  return h;
}

TEST(F16, EveryPatternWidensToItsMeaningAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float f = static_cast<float>(with_bits(bits));
    const double want = meaning(static_cast<uint16_t>(bits));
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(f)) << bits;
      ASSERT_EQ(F16(f).bits, bits | 0x200) << "a quiet NaN with the same sign and payload";
      continue;
    }
    ASSERT_EQ(static_cast<double>(f), want) << bits;
    ASSERT_EQ(std::signbit(f), bits >= 0x8000) << bits;
    ASSERT_EQ(F16(f).bits, bits);
  }
}

// Between neighbours, values below the midpoint round to the lower one and values above it to the upper one;
// the midpoint rounds to the one whose last bit is 0. The step past the largest value is as wide as the one
// before.
TEST(F16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits)
    for (const uint32_t sign : {0u, 0x8000u}) {
      const double low = meaning(static_cast<uint16_t>(bits)),
                   high = bits == 0x7bff ? 65536 : meaning(static_cast<uint16_t>(bits + 1));
      const float middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
      const auto rounded = [&](float f) { return F16(sign ? -f : f).bits; };
      ASSERT_EQ(rounded(middle), (bits + (bits & 1)) | sign);
      ASSERT_EQ(rounded(std::nextafter(middle, 0.0f)), bits | sign);
      ASSERT_EQ(rounded(std::nextafter(middle, 1e9f)), (bits + 1) | sign);
    }
}

TEST(F16, EndsOfTheRange) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(F16(kInf).bits, 0x7c00);
  EXPECT_EQ(F16(-kInf).bits, 0xfc00);
  EXPECT_EQ(F16(std::numeric_limits<float>::max()).bits, 0x7c00);
  EXPECT_EQ(F16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(F16(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(F16(-0.0f).bits, 0x8000);
  EXPECT_EQ(F16().bits, 0);
  EXPECT_EQ(DTypeOf<F16>::value, DType::F16);
}

}  // namespace
}  // namespace quintet::base
