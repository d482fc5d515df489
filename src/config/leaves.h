// The values that a recipe file gives, by key, as TOML nodes.
#pragma once

#include <map>
#include <string>

#include "config/overrides.h"

namespace quintet::config {

using Leaves = std::map<std::string, const toml::node*>;

// A value as messages show it; long lists are cut short.
std::string text_of(const toml::node& node);

// The string given for a key; empty when there is none.
std::string given_text(const Leaves& leaves, const char* key);

}  // namespace quintet::config
