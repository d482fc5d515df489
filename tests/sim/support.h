// Shared by the tests of room sim: worlds of small recipes.
#pragma once

#include "program/support.h"
#include "sim/simulate.h"

namespace quintet::sim::testing {

// All ranks. Refers to `world`.
inline World world_of(const program::testing::World& world) {
  World out;
  for (size_t r = 0; r < world.programs.size(); ++r)
    out.ranks.push_back({&world.programs[r], &world.expanded[r]});
  return out;
}

}  // namespace quintet::sim::testing
