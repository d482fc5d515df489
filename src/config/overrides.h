// Overrides of a recipe on the command line, applied to its TOML tree.
#pragma once

// Where assertions are on, toml++ asserts what some invalid files violate; without, it reports the error.
#define TOML_ASSERT(expr) static_assert(true)
#include <toml++/toml.h>

#include <string>

namespace quintet::config {

// Applies "a.b=c". Copied nodes have no line, so problems with them report none.
void apply_override(toml::table& tree, const std::string& text);

}  // namespace quintet::config
