// Numbers with their nouns.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"

namespace quintet::base {

// "1 file", "1,204 files"; `many` where an s does not make the plural.
template <std::integral T>
std::string counted(T count, std::string_view one, std::string_view many = {}) {
  return fmt::format("{} {}{}", thousands(static_cast<int64_t>(count)),
                     count == 1 || many.empty() ? one : many, count == 1 || !many.empty() ? "" : "s");
}

}  // namespace quintet::base
