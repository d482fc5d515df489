// Strings as TOML.
#pragma once

#include <string>
#include <string_view>

namespace quintet::config {

// In quotes, with control characters (C1 too, which TOML would allow) escaped: safe to print.
std::string toml_text(std::string_view text);

}  // namespace quintet::config
