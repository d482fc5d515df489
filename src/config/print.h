// Prints recipes.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"

namespace quintet::config {

// Canonical TOML: every key, in schema order; numbers read back bit-equal. parse(to_toml(r)) == r for every
// resolved r.
std::string to_toml(const Recipe& recipe);

// Every key with its value as TOML, in schema order.
struct KeyText {
  std::string key, text;
  friend bool operator==(const KeyText&, const KeyText&) = default;
};
std::vector<KeyText> key_texts(const Recipe& recipe);

// The same keys as nested JSON objects.
std::string to_json(const Recipe& recipe, int indent = 2);

}  // namespace quintet::config
