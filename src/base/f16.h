// IEEE half precision as a storage type: 11 bits of precision up to 65504, subnormals down to 2^-24.
#pragma once

#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace quintet::base {

// Conversion rounds to nearest even (65520 and above become infinite) and keeps NaN, with the same bits as
// the conversion instructions of CPUs and GPUs. Selects instead of branches, so that compilers can
// vectorise it.
struct F16 {
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    // One ulp of 0.5f is 2^-24, the subnormal step: the addition rounds to it.
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(a) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
    const uint32_t normal = (a - (112u << 23) + 0xfffu + (a >> 13 & 1u)) >> 13;
    const uint32_t nan = 0x7e00u | (a >> 13 & 0x3ffu);
    const uint32_t finite = a < 0x38800000u ? small : normal;  // 2^-14
    const uint32_t special = a > 0x7f800000u ? nan : 0x7c00u;
    bits = static_cast<uint16_t>(sign | (a >= 0x477ff000u ? special : finite));  // 65520
  }
  explicit operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, a = bits & 0x7fffu;
    const uint32_t small = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(a)) * 0x1p-24f);
    const uint32_t normal = (a << 13) + (112u << 23);
    const uint32_t special = 0x7f800000u | a << 13 | (a > 0x7c00u ? 0x400000u : 0u);
    return std::bit_cast<float>(sign | (a < 0x400u ? small : a < 0x7c00u ? normal : special));
  }
};

template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::F16;
};

}  // namespace quintet::base
