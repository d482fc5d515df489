// Whether a schedule can run. Assumed of the machine: a rank computes its actions one by one in the order
// given; every ordered pair of ranks has one channel for activations and one for gradients; a channel
// delivers in the order sent and holds nothing (a message waits at the sender until it is received).
#pragma once

#include "schedule/schedule.h"

namespace quintet::schedule {

// Throws UserError that names the rank and the action, when
// - the shape is wrong (number of ranks, V shape without two chunks, chunk or micro-batch out of range),
// - an action is missing or there twice, or a backward is both whole and split,
// - a B or BW comes before its F, a W before its B, on the same rank,
// - a mixed pair is not an F followed by a B or BW,
// - ranks wait for each other in a circle (deadlock),
// - a rank uses the messages of a channel in another order than they are sent,
// - a rank holds more activations than `max_in_flight` promises.
void check(const Schedule& schedule);

}  // namespace quintet::schedule
