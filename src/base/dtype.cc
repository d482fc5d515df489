#include "base/dtype.h"

#include <array>
#include <utility>

namespace quintet::base {
namespace {
constexpr std::array<std::pair<DType, std::string_view>, 10> kNames = {{{DType::F64, "f64"},
                                                                        {DType::F32, "f32"},
                                                                        {DType::BF16, "bf16"},
                                                                        {DType::F16, "f16"},
                                                                        {DType::I64, "i64"},
                                                                        {DType::I32, "i32"},
                                                                        {DType::I16, "i16"},
                                                                        {DType::U8, "u8"},
                                                                        {DType::E4M3, "e4m3"},
                                                                        {DType::E5M2, "e5m2"}}};
}  // namespace

std::string_view to_string(DType t) {
  for (const auto& [type, name] : kNames)
    if (type == t) return name;
  return "?";
}

std::optional<DType> parse_dtype(std::string_view text) {
  for (const auto& [type, name] : kNames)
    if (name == text) return type;
  return std::nullopt;
}

}  // namespace quintet::base
