// A list scheduler: whenever a rank is free, it takes the best action it could start, by a policy of a few
// numbers. The result depends on costs and memory; synthesize.h tries many policies.
#pragma once

#include <optional>

#include "schedule/refill.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace quintet::schedule {

// A rank prefers B over F over W.
struct Policy {
  // The most activations that rank r holds between F and B: base + slope * (p - 1 - r), in stages.
  double base = 0, slope = 0;
  // How long a rank waits for a B that is known to arrive, as a fraction of an action's time.
  double patience = 0;
  bool forward_first = false;  // prefer F over B
  auto operator<=>(const Policy&) const = default;
};

// `shape` gives ranks, chunks, micro-batches and placement; its actions are ignored. Backwards are split.
// Returns nullopt if the ranks stall: the memory is too small for the policy.
std::optional<Schedule> greedy(const Schedule& shape, const Costs& costs, const Memory& memory,
                               const Policy& policy);

}  // namespace quintet::schedule
