#include "hardware/accelerator.h"

#include <algorithm>

namespace quintet::hardware {
namespace {
constexpr std::array<std::string_view, kNumArithmetics> kNames = {"f64",  "f32", "tf32", "f16",
                                                                  "bf16", "fp8", "fp4"};
constexpr std::array<std::string_view, kNumVendors> kVendors = {"",       "nvidia", "amd", "intel",
                                                                "google", "aws",    "cpu"};
constexpr std::array<double, kNumArithmetics> kBytes = {8, 4, 4, 2, 2, 1, 0.5};
}  // namespace

std::string_view to_string(Arithmetic a) { return kNames[static_cast<size_t>(a)]; }

std::optional<Arithmetic> arithmetic_from(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Arithmetic>(i);
  return std::nullopt;
}

std::string_view to_string(Vendor vendor) { return kVendors[static_cast<size_t>(vendor)]; }

std::optional<Vendor> vendor_from(std::string_view name) {
  const auto found = std::ranges::find(kVendors, name);
  if (found == kVendors.end()) return std::nullopt;
  return static_cast<Vendor>(found - kVendors.begin());
}

double bytes_per_element(Arithmetic a) { return kBytes[static_cast<size_t>(a)]; }

}  // namespace quintet::hardware
