// Working out what a recipe leaves open, and every rule that a recipe must keep.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/problem.h"
#include "config/recipe.h"
#include "config/schedule_traits.h"

namespace quintet::config {

// The words that memory.recompute_ops may hold.
std::span<const std::string_view> recompute_classes();

// For recipes built in code: fills in whatever is 0 or empty as recipe.h says, checks every rule and throws
// RecipeError with all that are broken. Idempotent. A preset named in the recipe is not applied again.
Recipe resolve(Recipe recipe);

// The problems of a recipe that resolve() would refuse; empty when it is legal.
std::vector<Problem> problems_of(const Recipe& recipe);

// Names of all rules that span keys, in the order they are checked.
std::vector<std::string> rule_names();

// Throws RecipeError when `world` ranks are not what the layout takes (pp x dp_replicate x dp_shard x cp x
// tp), naming the factors and a layout change that would fit.
void check_world(const Recipe& recipe, int64_t world);

}  // namespace quintet::config
