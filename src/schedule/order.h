// Dependencies between actions, stated once; the checker, the simulator and the placement of W all walk
// schedules through it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace quintet::schedule {

// An action of the whole pipeline, by virtual stage. A BW satisfies needs for its B.
struct Need {
  Kind kind = Kind::F;
  int stage = 0;
  int micro = 0;
};

// F needs the F of the previous stage; B and BW need their own F and the B of the next stage; W needs its own
// B.
std::vector<Need> needs_of(const Schedule& schedule, int rank, const Action& action);

// Calls visit(rank, index) for every action, after everything it needs and after its predecessors on the
// rank; the two actions of a mixed pair are visited one after the other, once both could start. Returns
// nullopt if all were visited; otherwise describes the cycle of actions that wait for each other. Every
// action that an action needs must be in the schedule.
std::optional<std::string> walk(const Schedule& schedule,
                                const std::function<void(int rank, int index)>& visit);

}  // namespace quintet::schedule
