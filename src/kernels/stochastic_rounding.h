// Stochastic rounding to the mantissa of bf16, by random numbers that belong to elements of whole parameters:
// the same in every layout.
#pragma once

#include <bit>

#include "base/philox.h"
#include "kernels/update_ranges.h"

namespace quintet::kernels {

// 32 random bits of an element in an update: the lower half for its first moment, the upper for its second.
inline uint32_t random_word(uint64_t key, int64_t element, int64_t update) {
  return base::philox(key, static_cast<uint64_t>(element) >> 2, static_cast<uint64_t>(update))[element & 3];
}

// x rounded to the mantissa of bf16, up with a probability equal to the discarded fraction, for a uniform
// `random` below 2^16. Infinities and NaN are returned unchanged.
inline float round_stochastically(float x, uint32_t random) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + random) & 0xffff0000u);
}
inline double round_stochastically(double x, uint32_t random) {
  constexpr int kCut = 52 - 7;
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  if (bits << 1 >> 53 == 0x7ffu) return x;
  return std::bit_cast<double>((bits + (uint64_t{random} << (kCut - 16))) >> kCut << kCut);
}

}  // namespace quintet::kernels
