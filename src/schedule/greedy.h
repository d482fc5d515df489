// Schedules that write themselves: every rank takes, whenever it is free, the best action that it could
// start, by a policy of a few numbers. What comes out depends on costs and memory; synthesize.h tries many
// policies.
#pragma once

#include <optional>

#include "schedule/refill.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace quintet::schedule {

// A rank prefers B to F to W.
struct Policy {
  // The most activations that rank r has between F and B: base + slope * (p - 1 - r), in stages.
  double base = 0, slope = 0;
  // For how much of an action's time a rank rather waits for a B that it knows to come.
  double patience = 0;
  bool forward_first = false;  // F before B
  auto operator<=>(const Policy&) const = default;
};

// `shape` gives ranks, chunks, micro-batches and placement; its actions are not looked at. Backwards are
// split. Nothing when the ranks come to stand still: the memory is too small for the policy.
std::optional<Schedule> greedy(const Schedule& shape, const Costs& costs, const Memory& memory,
                               const Policy& policy);

}  // namespace quintet::schedule
