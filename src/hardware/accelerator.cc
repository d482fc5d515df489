#include "hardware/accelerator.h"

namespace quintet::hardware {

std::string_view to_string(Arithmetic a) {
  constexpr std::array<std::string_view, kNumArithmetics> names = {"f64",  "f32", "tf32", "f16",
                                                                   "bf16", "fp8", "fp4"};
  return names[static_cast<size_t>(a)];
}

}  // namespace quintet::hardware
