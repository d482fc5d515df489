// Which words of names.h a key takes. Some are legal under one key only, and refused with a reason elsewhere.
#pragma once

#include <string_view>

#include "config/recipe.h"

namespace quintet::config {

template <class E>
constexpr bool is_accepted(std::string_view, E) {
  return true;
}
constexpr bool is_accepted(std::string_view key, base::DType type) {
  return type != base::DType::F16 || key == "precision.compute";
}
constexpr bool is_accepted(std::string_view, Master master) { return master != Master::Bf16; }

}  // namespace quintet::config
