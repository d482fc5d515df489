// Named model geometries, taken from the models' published configuration files.
#pragma once

#include <span>
#include <string_view>

#include "config/recipe.h"

namespace quintet::config {

// All presets, tiny ones first. model.preset is the name; values that resolve() derives may be 0.
std::span<const Model> presets();

// Null when the name is unknown.
const Model* find_preset(std::string_view name);

}  // namespace quintet::config
