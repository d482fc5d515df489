// Philox4x32-10 on many counters at once, with the words of base/philox.h.
#pragma once

#include "kernels/cpu/support/simd.h"

namespace quintet::kernels::cpu::QUINTET_ISA {

inline constexpr int kPhiloxLanes = kVectorBytes / 8;
// One 32-bit word per 64-bit lane: the form in which every instruction set here multiplies 32 x 32 -> 64
// bits.
using PhiloxVec = VectorN<uint64_t, kPhiloxLanes>;

struct PhiloxWords {
  PhiloxVec w[4];
};

inline PhiloxWords philox(uint64_t key, PhiloxWords c) {
  constexpr uint64_t kLow = 0xffffffffu;
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    // Both factors are masked to 32 bits, so that the compiler emits the single widening multiply.
    const PhiloxVec p0 = (c.w[0] & kLow) * (PhiloxVec{} + uint64_t{0xD2511F53u});
    const PhiloxVec p1 = (c.w[2] & kLow) * (PhiloxVec{} + uint64_t{0xCD9E8D57u});
    c = {{(p1 >> 32) ^ c.w[1] ^ uint64_t{k0}, p1 & kLow, (p0 >> 32) ^ c.w[3] ^ uint64_t{k1}, p0 & kLow}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// The words of counter i at to[4 i ...], as base::philox returns them.
inline void store_words(const PhiloxWords& words, uint32_t* to) {
  const PhiloxVec low = words.w[0] | (words.w[1] << 32), high = words.w[2] | (words.w[3] << 32);
  PhiloxVec first_order, second_order;  // low and high alternate
  for (int i = 0; i < kPhiloxLanes; ++i) {
    first_order[i] = static_cast<uint64_t>(i % 2 * kPhiloxLanes + i / 2);
    second_order[i] = static_cast<uint64_t>(i % 2 * kPhiloxLanes + (kPhiloxLanes + i) / 2);
  }
  const PhiloxVec first = __builtin_shuffle(low, high, first_order);
  const PhiloxVec second = __builtin_shuffle(low, high, second_order);
  std::memcpy(to, &first, sizeof(first));
  std::memcpy(to + 2 * kPhiloxLanes, &second, sizeof(second));
}

// The smallest word that is kept: keep with probability 1 - p.
inline uint64_t keep_threshold(double p) {
  const double scaled = p * 0x1p32;
  const uint64_t floor = static_cast<uint64_t>(scaled);
  return floor + (static_cast<double>(floor) < scaled ? 1 : 0);
}

}  // namespace quintet::kernels::cpu::QUINTET_ISA
