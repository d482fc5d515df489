// A recipe as text.
#pragma once

#include <string>

#include "config/recipe.h"

namespace quintet::config {

// Canonical TOML: every key, in the order of the schema; numbers read back bit-equal. parse(to_toml(r)) == r
// for every resolved r.
std::string to_toml(const Recipe& recipe);

// The same keys as a JSON object of objects.
std::string to_json(const Recipe& recipe, int indent = 2);

}  // namespace quintet::config
