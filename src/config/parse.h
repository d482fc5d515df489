// Parses recipe files into typed recipes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/problem.h"
#include "config/recipe.h"

namespace quintet::config {

// A search chooses the layout, so that a micro-batch that the recipe does not give may be of any size.
enum class Purpose : uint8_t { Run, Search };
// What a recipe is read for.
struct Use {
  Purpose purpose = Purpose::Run;
  int64_t ranks = 0;  // of the launcher or the cluster; 0: unknown
};

// Parses the file, applies overrides, checks types, resolves and validates. An override is "a.b=c" as in
// --set: c is a TOML value, or else a plain string; later overrides win. Throws RecipeError with every
// problem found, and UserError when the file cannot be read or is not TOML.
//
// Paths in the file are relative to its folder, in overrides to the working directory; the result has
// absolute paths.
//
// A layout option that has no effect because its axis has one rank, such as parallel.zero with dp_shard = 1,
// gets its neutral value and a line in `notes`: recipes are scaled down with --set.
//
// An axis of -1 takes the rest of parallel.world ranks or, without that key, of `use.ranks`.
Recipe load(const std::string& path, const std::vector<std::string>& overrides = {},
            std::vector<std::string>* notes = nullptr, const Use& use = {});

// The same from text; `source` appears in messages. Paths stay as they are.
Recipe parse(std::string_view text, const std::vector<std::string>& overrides = {},
             const std::string& source = "recipe", std::vector<std::string>* notes = nullptr,
             const Use& use = {});

}  // namespace quintet::config
