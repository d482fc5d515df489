// The simulated step of a report: the program of one rank per pipeline stage and the time span of each of its
// instructions. With very many micro-batches, only a sample is simulated: see sampled_steps.h.
#pragma once

#include "compiler/compile.h"
#include "sim/simulate.h"

namespace quintet::plan {

struct Timeline {
  compiler::Ranks ranks;
  sim::Simulation simulation;
  int64_t micro_batches = 0;  // simulated

  sim::World world() const;  // points into *this
};

// One representative rank per pipeline position.
sim::World world_of(const compiler::Ranks& ranks);

// Chrome trace JSON (Perfetto), in the same format as the trace of a real run.
void write_trace(const Timeline& timeline, const std::string& path);

}  // namespace quintet::plan
