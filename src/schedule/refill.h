// Placing W by measured costs. The named zero-bubble schedules place W as if F = B = W; where W is cheaper,
// more of them are needed to fill the same gap.
#pragma once

#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace quintet::schedule {

struct Memory {
  double most = 0;        // activations of a chunk that a rank may hold at once
  double freed_at_b = 0;  // share of an activation that its B gives back already; the rest goes with its W
};

// The same F and B in the same order on every rank, with every W placed anew: where the rank would wait for
// about as long as a W takes or longer, where `memory` needs it, and the rest at the end. Of several readings
// of "about", the one with the shortest span (Timeline::longest_span); the
// schedule as it came if none is better and it keeps to the memory. Promises the peaks of the result. BW and
// mixed pairs are refused, and a limit below what the order of F and B needs by itself.
Schedule refill_weights(const Schedule& schedule, const Costs& costs, const Memory& memory);

}  // namespace quintet::schedule
