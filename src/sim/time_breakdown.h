// Where the time of a simulated step goes on the compute stream of a rank: its own work, waiting for
// communication, and waiting for other pipeline stages. The parts add up to the step.
//
// A wait is attributed by walking backwards from the instruction that waited: time during which the
// collective it waited for last was in flight belongs to that communicator's axes; time before that, to
// whatever the collective itself was waiting for. Waiting for a member of another stage to arrive is a
// bubble.
#pragma once

#include <string>
#include <vector>

#include "sim/durations.h"
#include "sim/simulate.h"

namespace quintet::sim {

// Whether a communicator joins pipeline stages: waiting in it is the bubble.
bool joins_stages(const program::Communicator& comm);

struct TimeBreakdown {
  double matmul = 0, attention = 0, other = 0;  // the model's kernels
  double optimizer = 0;                         // kernels at the start and end of the step
  double bubble = 0;
  std::vector<double> waits;  // by CommId
  double busy() const { return matmul + attention + other + optimizer; }
  double total() const;
};

TimeBreakdown time_breakdown(const Simulation& sim, const World& world, size_t rank);

}  // namespace quintet::sim
