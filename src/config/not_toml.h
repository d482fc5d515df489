// Recipes that are not TOML, or not sane.
#pragma once

#include <string>
#include <string_view>

namespace quintet::config {

// The likely cause, where it is not the `reason` that the parser gives; empty where it is.
std::string likely_cause(std::string_view text, std::string_view reason);

// Parts of the key with the most of them: 3 for a.b.c = 1 and for [a.b.c]. Parsing nests as deeply.
int most_key_parts(std::string_view text);

}  // namespace quintet::config
