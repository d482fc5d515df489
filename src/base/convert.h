// Conversion of arrays between floating element types, each element rounded to nearest even.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace quintet::base {

constexpr bool is_floating(DType t) {
  return t == DType::F64 || t == DType::F32 || t == DType::BF16 || t == DType::F16;
}

// The arrays do not overlap. Equal types are copied whatever they are; others must be floating.
void convert_elements(const std::byte* from, DType from_type, std::byte* to, DType to_type, int64_t count);

}  // namespace quintet::base
