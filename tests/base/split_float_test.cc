#include "base/split_float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace quintet::base {
namespace {

float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

TEST(SplitFloat, NothingIsLost) {
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 977) {
    const float f = float_of(static_cast<uint32_t>(bits));
    if (!std::isfinite(f)) continue;
    const SplitFloat s = split_float(f);
    ASSERT_EQ(std::bit_cast<uint32_t>(join_float(s.high, s.low)), bits);
  }
}

TEST(SplitFloat, TheUpperHalfIsTheNearest) {
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 977) {
    const float f = float_of(static_cast<uint32_t>(bits));
    if (!std::isfinite(f) || (bits & 0xffffu) == 0x8000u) continue;
    ASSERT_EQ(split_float(f).high.bits, Bf16(f).bits) << bits;
  }
  // Ties round away from zero.
  EXPECT_EQ(split_float(float_of(0x3f808000u)).high.bits, 0x3f81u);
  EXPECT_EQ(split_float(float_of(0xbf808000u)).high.bits, 0xbf81u);
  EXPECT_EQ(split_float(float_of(0x3f808000u)).low, -0x8000);
}

TEST(SplitFloat, NonFiniteValuesStayNonFinite) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const float f : {inf, -inf}) {
    const SplitFloat s = split_float(f);
    EXPECT_EQ(static_cast<float>(s.high), f);
    EXPECT_EQ(join_float(s.high, s.low), f);
  }
  for (const uint32_t bits : {0x7fc00000u, 0x7f800001u, 0xffffffffu}) {
    const SplitFloat s = split_float(float_of(bits));
    EXPECT_TRUE(std::isnan(static_cast<float>(s.high)));
    EXPECT_TRUE(std::isnan(join_float(s.high, s.low)));
  }
  // The upper half of the largest finite float is infinite, and the value is still restored.
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(join_float(split_float(most).high, split_float(most).low), most);
}

}  // namespace
}  // namespace quintet::base
