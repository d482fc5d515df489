// An f32 stored as two halves: the nearest bf16, and a signed 16-bit remainder. Its bits are
// (high's bits << 16) + low, so nothing is lost, and the high half is the float rounded to nearest, ties
// away from zero. For infinity and NaN, whose rounding would carry into the exponent, the high half is
// truncated instead.
#pragma once

#include "base/dtype.h"

namespace quintet::base {

struct SplitFloat {
  Bf16 high;
  int16_t low = 0;
};

// Always inlined, because callers are compiled for different instruction sets.
[[gnu::always_inline]] inline SplitFloat split_float(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  const uint32_t high = (finite ? bits + 0x8000u : bits | (bits << 16 != 0 ? 0x400000u : 0u)) >> 16;
  SplitFloat s;
  s.high.bits = static_cast<uint16_t>(high);
  s.low = finite ? static_cast<int16_t>(static_cast<uint16_t>(bits - (high << 16))) : int16_t{0};
  return s;
}

[[gnu::always_inline]] inline float join_float(Bf16 high, int16_t low) {
  const uint32_t bits =
      (static_cast<uint32_t>(high.bits) << 16) + static_cast<uint32_t>(static_cast<int32_t>(low));
  return std::bit_cast<float>(bits);
}

}  // namespace quintet::base
