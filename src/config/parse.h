// Parses recipe files into typed recipes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/problem.h"
#include "config/recipe.h"

namespace quintet::config {

// Parses the file, applies overrides, checks types, resolves and validates. An override is "a.b=c" as in
// --set: c is a TOML value, or else a plain string; later overrides win. Throws RecipeError with every
// problem found, and UserError when the file cannot be read or is not TOML. parallel.schedule = "file:PATH"
// is searched in the recipe's folder first, then in the working directory.
Recipe load(const std::string& path, const std::vector<std::string>& overrides = {});

// The same from text; `source` appears in messages.
Recipe parse(std::string_view text, const std::vector<std::string>& overrides = {},
             const std::string& source = "recipe");

}  // namespace quintet::config
