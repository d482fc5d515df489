// Resolves recipes and checks every rule.
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

// The op classes that memory.recompute_ops accepts.
std::span<const std::string_view> recompute_classes();

// For recipes built in code: derives values that are 0 or empty as recipe.h describes, checks every rule and
// throws RecipeError with all violations. Idempotent. Does not apply the recipe's preset again.
Recipe resolve(Recipe recipe);

// The problems that resolve() would report; empty when the recipe is legal.
std::vector<Problem> problems_of(const Recipe& recipe);

// Names of all rules that span keys, in checking order.
std::vector<std::string> rule_names();

// Throws RecipeError unless the layout (pp x dp_replicate x dp_shard x cp x tp) has `world` ranks. The
// message gives the factors and a change of layout that fits.
void check_world(const Recipe& recipe, int64_t world);

}  // namespace quintet::config
