// Instructions that run concurrently with computation on every backend: messages, sums shared by stages.
#pragma once

#include <vector>

#include "program/expand.h"

namespace quintet::exec {

// Messages, and sums of gradients that two stages share: the partner may be far from ready, and may depend on
// this rank's computation. The thread or stream of the computation never executes them.
bool is_message(const program::Program& p, const program::Instr& instr);

// By buffer: whether it is sent or received.
std::vector<char> buffers_in_messages(const program::Program& p);

// By issue: the position of the last Free in the compute stream whose bytes a message writes; -1: none. A
// message need not wait for a Free, which does nothing, unless freed bytes are overwritten: then the received
// data must arrive later.
std::vector<int> frees_before_messages(const program::Program& p, const program::Expanded& expanded,
                                       const std::vector<char>& in_message);

}  // namespace quintet::exec
