// A layout that a search found, as a recipe that runs.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "hardware/cluster.h"

namespace quintet::search {

struct EmittedRecipe {
  config::Recipe recipe;
  std::vector<std::string> to_do;  // what only its user can fill in; empty: it runs as it is
  std::string text;                // TOML, `to_do` and how to start it as comments at its head
};

// For the cluster's devices: run.device is "cuda" on NVIDIA's and "cpu" on CPUs; on others, which the engine
// does not run on, it stays. `made_up`: the recipe began as the name of a model, so that what training needs
// beside a layout was filled in.
EmittedRecipe emit_recipe(const config::Recipe& recipe, const hardware::Cluster& cluster, bool made_up);

}  // namespace quintet::search
