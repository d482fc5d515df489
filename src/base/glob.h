// Patterns of names.
#pragma once

#include <string_view>

namespace quintet::base {

// Whether a name matches a pattern: * stands for any characters, including none, and ? for any single one.
bool glob_match(std::string_view pattern, std::string_view name);

}  // namespace quintet::base
