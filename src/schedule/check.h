// Checks whether a schedule can run. Machine model: a rank computes its actions one at a time in the given
// order; every ordered pair of ranks has one channel for activations and one for gradients; a channel
// delivers in order and buffers nothing (a message stays at the sender until it is received).
#pragma once

#include "schedule/schedule.h"

namespace quintet::schedule {

// Throws UserError, naming the rank and the action, if
// - the shape is wrong (number of ranks, V shape without two chunks, chunk or micro-batch out of range),
// - an action is missing or duplicated, or a backward is both whole and split,
// - a B or BW precedes its F, or a W precedes its B, on the same rank,
// - a mixed pair is not an F followed by a B or BW,
// - ranks wait for each other in a cycle (deadlock),
// - a rank consumes the messages of a channel in a different order than they are sent,
// - a rank holds more activations than `max_in_flight` promises.
void check(const Schedule& schedule);

}  // namespace quintet::schedule
