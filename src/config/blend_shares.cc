#include "config/blend_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

namespace quintet::config {
namespace {

// The digits of a number's shortest decimal spelling, and how many follow the point: 0.25 is {25, 2}.
struct Decimal {
  __int128 digits = 0;
  int places = 0;
};

Decimal decimal_of(double value) {
  Decimal d;
  int exponent = 0;
  bool after_point = false;
  const std::string text = fmt::format("{}", value);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      after_point = true;
    } else if (text[i] == 'e') {
      exponent = std::stoi(text.substr(i + 1));
      break;
    } else {
      d.digits = d.digits * 10 + (text[i] - '0');
      d.places += after_point;
    }
  }
  d.places -= exponent;
  return d;
}

}  // namespace

std::optional<std::vector<int64_t>> whole_shares(std::span<const double> weights) {
  std::vector<Decimal> decimals;
  int most = std::numeric_limits<int>::min(), least = std::numeric_limits<int>::max();
  for (const double w : weights) {
    if (!std::isfinite(w) || w <= 0) return std::nullopt;
    decimals.push_back(decimal_of(w));
    most = std::max(most, decimals.back().places);
    least = std::min(least, decimals.back().places);
  }
  // 17 digits and 10^18 fit into 128 bits; a ratio above that is too large in any case.
  if (most - least > 18) return std::nullopt;
  __int128 divisor = 0, sum = 0;
  for (Decimal& d : decimals) {
    for (int i = d.places; i < most; ++i) d.digits *= 10;
    for (__int128 a = d.digits; a != 0;) divisor = std::exchange(a, divisor % a);
  }
  std::vector<int64_t> shares;
  for (const Decimal& d : decimals) {
    sum += d.digits / divisor;
    if (sum > kMaxBlendSum) return std::nullopt;
    shares.push_back(static_cast<int64_t>(d.digits / divisor));
  }
  return shares;
}

std::optional<std::vector<int64_t>> whole_shares(const std::vector<BlendSet>& blend) {
  std::vector<double> weights;
  for (const BlendSet& s : blend) weights.push_back(s.tokens > 0 ? static_cast<double>(s.tokens) : s.weight);
  return whole_shares(weights);
}

}  // namespace quintet::config
