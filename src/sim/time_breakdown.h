// Where the time of a simulated step goes, as the compute stream of a rank spends it: in work of its own, in
// waiting for communication, in waiting for other pipeline stages. The shares of a rank add up to the step.
//
// What a stretch of waiting is for is found by going backwards from the instruction that waited: while the
// collective that it waited for last was under way, it waited for that communicator's axes; before, for
// whatever that collective itself was waiting for. Waiting for a member of another stage to come is a bubble.
#pragma once

#include <string>
#include <vector>

#include "sim/durations.h"
#include "sim/simulate.h"

namespace quintet::sim {

// The mesh axes of a communicator, in one word: "tp", "dp_shard+cp", "pp", "ep".
std::string axes_of(const program::Communicator& comm);

struct TimeBreakdown {
  double matmul = 0, attention = 0, other = 0;  // kernels of the model
  double optimizer = 0;                         // kernels of the step's begin and end
  double bubble = 0;
  std::vector<double> waits;  // by CommId
  double busy() const { return matmul + attention + other + optimizer; }
  double total() const;
};

TimeBreakdown time_breakdown(const Simulation& sim, const World& world, size_t rank);

}  // namespace quintet::sim
