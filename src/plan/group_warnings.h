// Whether parallel.group joins too many blocks or too few, from the plan of the other choice.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace quintet::plan {

// Collectives over data ranks per step on the busiest rank, of parameters, gradients and the step's scalars.
double data_collectives(const Report& report);

// One sentence each, with predicted bytes, seconds and collectives of both. A recipe that sets parallel.group
// is compared with one block per group; one that does not is compared with several blocks, and only where
// its messages are so short that latency decides. Either is one more plan.
std::vector<std::string> group_warnings(const Report& report);

}  // namespace quintet::plan
