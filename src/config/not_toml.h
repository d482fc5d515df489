// Recipes that are not TOML.
#pragma once

#include <string>
#include <string_view>

namespace quintet::config {

// The likely cause, where it is not the `reason` that the parser gives; empty where it is.
std::string likely_cause(std::string_view text, std::string_view reason);

}  // namespace quintet::config
