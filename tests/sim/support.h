// Shared by the tests of room sim: worlds of small recipes, whole and as representatives.
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

// One rank of every pipeline stage. Refers to `ranks`.
inline World world_of(const compiler::Ranks& ranks) {
  World out;
  for (const compiler::RankProgram& r : ranks.program) out.ranks.push_back({&r.program, &r.step});
  out.like = [&ranks](base::RankId r) { return ranks.layout.mesh.index(r, ranks.layout.pipeline); };
  return out;
}

inline compiler::Ranks compile_representatives(const program::testing::Overrides& overrides) {
  const config::Recipe recipe = program::testing::small_recipe(overrides);
  return compiler::compile_classes(recipe, {}, 1);
}

// Rates for which arithmetic, memory and links are each sometimes the bottleneck.
inline const Rates kRates{
    .flops_per_s = 7, .memory_bytes_per_s = 3, .sent_bytes_per_s = 0.3, .latency_s = 11};

}  // namespace quintet::sim::testing
