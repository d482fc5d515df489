// Paths in a recipe.
#pragma once

#include <functional>
#include <string_view>

#include "base/file.h"
#include "config/recipe.h"
#include "config/report.h"

namespace quintet::config {

// "~/data" in the home folder, which no shell expands in a file or after --set KEY=; anything else as it is.
std::string with_home(const std::string& path);

// "s3" of "s3://bucket/x"; empty for a path.
std::string_view scheme_of(std::string_view text);

// Makes the paths of a recipe absolute. Those of keys that stand in the recipe's file are relative to its
// folder, those of overrides to the working directory.
void place_paths(Recipe& recipe, const base::Path& folder,
                 const std::function<bool(const char* key)>& in_file,
                 const std::function<bool(const char* key)>& in_override, Report& report);

}  // namespace quintet::config
