#include "plan/timeline.h"

#include "sim/trace.h"

namespace quintet::plan {

sim::World world_of(const compiler::Ranks& ranks) {
  sim::World world;
  for (const compiler::RankProgram& r : ranks.program) world.ranks.push_back({&r.program, &r.step});
  const layout::Layout* layout = &ranks.layout;
  world.like = [layout](base::RankId rank) { return layout->mesh.index(rank, layout->pipeline); };
  return world;
}

sim::World Timeline::world() const { return world_of(ranks); }

void write_trace(const Timeline& timeline, const std::string& path) {
  observe::write_trace(path, sim::make_trace(timeline.simulation, timeline.world()));
}

}  // namespace quintet::plan
