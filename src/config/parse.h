// Recipe files to typed recipes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/problem.h"
#include "config/recipe.h"

namespace quintet::config {

// Reads, overrides, types, resolves and checks. Each override is "a.b=c" as after --set: c is read as a TOML
// value, and as a plain string when it is not one; later overrides win. Throws RecipeError with every problem
// found, and UserError when the file cannot be read or is not TOML. parallel.schedule = "file:PATH" is looked
// for in the recipe's folder first, then in the working directory.
Recipe load(const std::string& path, const std::vector<std::string>& overrides = {});

// The same from text; `source` names it in messages.
Recipe parse(std::string_view text, const std::vector<std::string>& overrides = {},
             const std::string& source = "recipe");

}  // namespace quintet::config
