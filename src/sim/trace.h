// A simulated step in the trace format of real runs: one process per rank, one thread per stream.
#pragma once

#include "observe/trace.h"
#include "sim/simulate.h"

namespace quintet::sim {

std::vector<observe::RankTrace> make_trace(const Simulation& sim, const World& world);

}  // namespace quintet::sim
