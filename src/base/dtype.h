// Element types of tensors, and bfloat16 as a storage type.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace quintet::base {

// E4M3 and E5M2 are codes of 8 bits (base/fp8.h): they are moved and multiplied, never added.
enum class DType : uint8_t { F64, F32, BF16, F16, I64, I32, I16, U8, E4M3, E5M2 };

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::F64:
    case DType::I64:
      return 8;
    case DType::F32:
    case DType::I32:
      return 4;
    case DType::BF16:
    case DType::F16:
    case DType::I16:
      return 2;
    case DType::U8:
    case DType::E4M3:
    case DType::E5M2:
      return 1;
  }
  return 0;
}

std::string_view to_string(
    DType t);  // "f64", "f32", "bf16", "f16", "i64", "i32", "i16", "u8", "e4m3", "e5m2"
std::optional<DType> parse_dtype(std::string_view text);  // empty when the name is unknown

// bfloat16: the upper half of a float. Conversion rounds to nearest even; NaN stays NaN.
struct Bf16 {
  uint16_t bits = 0;
  Bf16() = default;
  explicit Bf16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
      bits = static_cast<uint16_t>((u >> 16) | 0x40u);
    else
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::F64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::F32;
};
template <>
struct DTypeOf<Bf16> {
  static constexpr DType value = DType::BF16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::I64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::I32;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::I16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::U8;
};

// The dtype of sums and statistics over elements of t: f64 for f64, otherwise f32.
constexpr DType accumulator_of(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

}  // namespace quintet::base
