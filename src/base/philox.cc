#include "base/philox.h"

#include <cmath>
#include <numbers>

namespace quintet::base {

uint64_t stream_key(uint64_t seed, std::string_view name) {
  uint64_t h = 0xcbf29ce484222325ull;  // FNV-1a over the name; Philox then mixes in the seed
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  const auto w = philox(seed, h, name.size());
  return (uint64_t{w[0]} << 32) | w[1];
}

double normal(uint64_t key, uint64_t index) {
  const auto w = philox(key, index);
  const double u1 =
      (static_cast<double>((uint64_t{w[0]} << 20) | (w[1] >> 12)) + 0.5) * 0x1p-52;  // in (0, 1)
  const double u2 = static_cast<double>(w[2]) * 0x1p-32;
  return std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2);
}

}  // namespace quintet::base
