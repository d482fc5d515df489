// Places W by measured costs. The named zero-bubble schedules place W as if F = B = W; where W is cheaper,
// more of them are needed to fill the same gap.
#pragma once

#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace quintet::schedule {

struct Memory {
  double most = 0;        // chunk activations that a rank may hold at once
  double freed_at_b = 0;  // fraction of an activation that its B frees; its W frees the rest
};

// Keeps F and B in order on every rank and reschedules every W: where the rank would otherwise wait for
// roughly as long as a W takes or longer, where `memory` requires it, and the rest at the end. Tries several
// thresholds for "roughly" and returns the result with the shortest span (Timeline::longest_span), or the
// input if none is better and the input respects the memory. max_in_flight is set to the peaks of the result.
// Throws UserError for BW, mixed pairs, and a limit below what the order of F and B needs by itself.
Schedule refill_weights(const Schedule& schedule, const Costs& costs, const Memory& memory);

}  // namespace quintet::schedule
