#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quintet::base {
namespace {

TEST(Philox, MatchesThePublishedVectors) {
  // Known answers of Philox4x32-10 from the Random123 distribution.
  const auto zero = philox(0, 0, 0);
  EXPECT_EQ(zero, (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const auto ones = philox(~0ull, ~0ull, ~0ull);
  EXPECT_EQ(ones, (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, NormalHasUnitMoments) {
  const uint64_t key = stream_key(7, "weights");
  double sum = 0, squares = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double x = normal(key, static_cast<uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / n, 0.0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0, 5 * std::sqrt(2.0 / n));
}

TEST(Philox, StreamsDifferBySeedAndName) {
  EXPECT_NE(stream_key(1, "a"), stream_key(2, "a"));
  EXPECT_NE(stream_key(1, "a"), stream_key(1, "b"));
  EXPECT_EQ(stream_key(1, "a"), stream_key(1, "a"));
}

}  // namespace
}  // namespace quintet::base
