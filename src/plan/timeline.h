// The simulated step behind a report: the programs of one rank of every pipeline stage and when each of their
// instructions runs. In a step of very many micro-batches only some are here: see sampled_steps.h.
#pragma once

#include "compiler/compile.h"
#include "sim/simulate.h"

namespace quintet::plan {

struct Timeline {
  compiler::Ranks ranks;
  sim::Simulation simulation;
  int64_t micro_batches = 0;  // that were simulated

  sim::World world() const;  // refers to this
};

// Representatives of all ranks: one of every pipeline place.
sim::World world_of(const compiler::Ranks& ranks);

// Chrome trace JSON (Perfetto), in the format of a real run's.
void write_trace(const Timeline& timeline, const std::string& path);

}  // namespace quintet::plan
