// Named model geometries, as published in the models' own configuration files.
#pragma once

#include <span>
#include <string_view>

#include "config/recipe.h"

namespace quintet::config {

// All presets, tiny ones first. model.preset holds the name; what resolve() works out may still be 0.
std::span<const Model> presets();

// Null when the name is unknown.
const Model* find_preset(std::string_view name);

}  // namespace quintet::config
