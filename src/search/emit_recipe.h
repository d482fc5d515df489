// Writes a layout found by a search as a recipe that runs.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "hardware/cluster.h"

namespace quintet::search {

struct EmittedRecipe {
  config::Recipe recipe;
  std::vector<std::string> to_do;  // what only the user can fill in; empty: it runs as it is
  std::string text;                // TOML; `to_do` and the launch command are comments at the top
};

// run.device becomes "cuda" for NVIDIA devices and "cpu" for CPUs; it is left alone for others, which the
// engine does not support. `from_model`: the recipe started from a model name, so its training settings other
// than the layout are arbitrary.
EmittedRecipe emit_recipe(const config::Recipe& recipe, const hardware::Cluster& cluster, bool from_model);

}  // namespace quintet::search
