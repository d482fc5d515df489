// The code books of 8-bit optimizer state: dynamic quantisation (Dettmers et al., 2022), as bitsandbytes has
// it. A code stands for a number of [-1, 1] (signed) or [0, 1] (unsigned), to be multiplied by the scale of
// its block. Magnitudes are 0, then in each of seven decades D = 1e-6, 1e-5, ..., 1 (i = 0 to 6) the middles
// of 2^i (signed) or 2^(i+1) (unsigned) equal parts of [0.1 D, D], and 1. Codes are in the order of their
// numbers:
//   unsigned  code = magnitude, 0 to 255
//   signed    code = 127 + magnitude, 0 to 128, of positive numbers; 127 - magnitude, 0 to 127, of negative
//             ones, which have no -1
#pragma once

#include <bit>
#include <cstdint>

namespace quintet::kernels {

template <bool kSigned>
struct DynamicMap {
  static constexpr int kLargest = kSigned ? 128 : 255;  // magnitude of 1
  static constexpr int kZero = kSigned ? 127 : 0;       // code of 0
  // Buckets of equal exponent and upper 7 bits of the mantissa, from 2^-23 to 1: none has two borders in it.
  static constexpr int kMantissa = 7, kOctaves = 23, kBuckets = (kOctaves << kMantissa) + 1;

  // Plain arrays, as they are read on GPUs, too.
  float value[256] = {};            // by code
  float border[kLargest + 1] = {};  // above it the next magnitude is nearer; rounded down to f32
  uint8_t first[kBuckets] = {};     // magnitude nearest to the smallest number of a bucket

  constexpr DynamicMap() {
    double magnitude[kLargest + 1] = {};
    constexpr double decade[7] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0};
    int k = 1;
    for (int i = 0; i < 7; ++i) {
      const int parts = kSigned ? 1 << i : 2 << i;
      for (int j = 0; j < parts; ++j)
        magnitude[k++] = static_cast<float>(decade[i] * (0.1 + 0.9 * (j + 0.5) / parts));
    }
    magnitude[k] = 1;
    for (int m = 0; m <= kLargest; ++m) {
      value[kZero + m] = static_cast<float>(magnitude[m]);
      if (kSigned && m > 0 && m < kLargest) value[kZero - m] = -static_cast<float>(magnitude[m]);
      const double middle = m < kLargest ? (magnitude[m] + magnitude[m + 1]) / 2 : 2.0;
      float rounded = static_cast<float>(middle);
      if (rounded > middle) rounded = std::bit_cast<float>(std::bit_cast<uint32_t>(rounded) - 1);
      border[m] = rounded;
    }
    int nearest = 0;
    for (int b = 0; b < kBuckets; ++b) {
      const auto bits = static_cast<uint32_t>(((127 - kOctaves) << kMantissa) + b) << (23 - kMantissa);
      while (std::bit_cast<float>(bits) > border[nearest]) ++nearest;
      first[b] = static_cast<uint8_t>(nearest);
    }
  }
};

inline constexpr DynamicMap<true> kSignedMap;
inline constexpr DynamicMap<false> kUnsignedMap;

// The code nearest to x, of magnitude at most 1; of two that are equally near the one nearer to 0. Number is
// float or double.
template <bool kSigned, class Number>
inline uint8_t nearest_code(const DynamicMap<kSigned>& map, Number x) {
  using Map = DynamicMap<kSigned>;
  const bool negative = x < 0;
  const Number magnitude = negative ? -x : x;
  int bucket = 0;
  if constexpr (sizeof(Number) == 8)
    bucket = static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> (52 - Map::kMantissa)) -
             ((1023 - Map::kOctaves) << Map::kMantissa);
  else
    bucket = static_cast<int>(std::bit_cast<uint32_t>(magnitude) >> (23 - Map::kMantissa)) -
             ((127 - Map::kOctaves) << Map::kMantissa);
  if (bucket < 0) bucket = 0;
  if (bucket >= Map::kBuckets) bucket = Map::kBuckets - 1;  // 1 and NaN
  int m = map.first[bucket];
  if constexpr (sizeof(Number) == 8) {
    // Wider than the table of borders: what that rounds matters here.
    const int at = Map::kZero + m;
    if (m < Map::kLargest && magnitude > (Number{map.value[at]} + Number{map.value[at + 1]}) / 2) ++m;
  } else if (magnitude > map.border[m]) {
    ++m;
  }
  if (!negative) return static_cast<uint8_t>(Map::kZero + m);
  return static_cast<uint8_t>(Map::kZero - (m < Map::kLargest ? m : Map::kLargest - 1));
}

}  // namespace quintet::kernels
