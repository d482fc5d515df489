// Counter-based random numbers (Philox4x32-10). A number is a pure function of a key (what it is for) and an
// index (which element), so initial weights and dropout masks are bit-equal in every layout.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace quintet::base {

// Four 32-bit words from a 64-bit key and a 128-bit counter.
inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low, uint64_t counter_high = 0) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                               static_cast<uint32_t>(counter_high),
                               static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// The key of a random stream, from a seed and a name.
uint64_t stream_key(uint64_t seed, std::string_view name);

// Standard normal number `index` of the stream (own Box-Muller in double, so that the result does not depend
// on libm).
double normal(uint64_t key, uint64_t index);

// Uniform in [0, 1) with 32 bits.
inline double uniform(uint64_t key, uint64_t index, uint64_t high = 0) {
  return static_cast<double>(philox(key, index, high)[0]) * 0x1p-32;
}

}  // namespace quintet::base
