// Named model geometries, taken from the models' published configuration files.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/recipe.h"

namespace quintet::config {

// All presets, tiny ones first. model.preset is the name; values that resolve() derives may be 0.
std::span<const Model> presets();

// The preset that a name may mean: spelled otherwise ("meta-llama/Llama-3-8B"), cut short, or with a slip.
// Empty if there is none.
std::string likely_preset(const std::string& name);
// What a message lists beside an unknown name: "similar ones: ..." or "known: ...".
std::string presets_beside(const std::string& likely);

// Null when the name is unknown.
const Model* find_preset(std::string_view name);

}  // namespace quintet::config
