// Shared by the tests of plans: small recipes on small clusters.
#pragma once

#include "config/parse.h"
#include "plan/plan.h"
#include "program/support.h"

namespace quintet::plan::testing {

inline config::Recipe recipe_of(const program::testing::Overrides& overrides) {
  return program::testing::small_recipe(overrides);
}

// As many devices as the recipe has ranks, two per node if possible.
inline Assumptions assumptions_for(const config::Recipe& recipe, const std::string& device = "h100") {
  const int64_t world = recipe.parallel.world(), per_node = world % 2 == 0 ? 2 : 1;
  Assumptions a;
  a.cluster = hardware::parse_cluster(fmt::format("{}x{} {}", world / per_node, per_node, device));
  a.threads = 1;
  return a;
}

}  // namespace quintet::plan::testing
