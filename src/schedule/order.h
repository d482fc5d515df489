// Who waits for whom. The one statement of the dependencies between actions; the checker, the simulator and
// the refilling of W all walk a schedule through it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/schedule.h"

namespace quintet::schedule {

// An action of the whole pipeline, by virtual stage. A BW counts as B for those who wait for it.
struct Need {
  Kind kind = Kind::F;
  int stage = 0;
  int micro = 0;
};

// F needs the F of the stage before; B and BW need their own F and the B of the stage after; W needs its own
// B.
std::vector<Need> needs_of(const Schedule& schedule, int rank, const Action& action);

// Calls visit(rank, index) for all actions in an order in which every action comes after all it needs and
// after those before it on its rank; the two of a mixed pair come one after the other, and only when both
// could start. Returns nothing if all were visited, else why not: the cycle of actions that wait for each
// other. Every action an action needs must be in the schedule.
std::optional<std::string> walk(const Schedule& schedule,
                                const std::function<void(int rank, int index)>& visit);

}  // namespace quintet::schedule
