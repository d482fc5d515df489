// What runs beside the order of computing on every backend: messages, and sums that pipeline stages share.
#pragma once

#include <vector>

#include "program/expand.h"

namespace quintet::exec {

// Messages, and sums of gradients that two stages share: the partner may be far from ready, and may wait for
// this rank's computing to become so. What carries the computing never carries them.
bool is_message(const program::Program& p, const program::Instr& instr);

// By buffer: whether it is sent or received.
std::vector<char> buffers_in_messages(const program::Program& p);

// By issue: the position of the last Free in the compute stream whose bytes a message writes; -1: none. A
// message need not wait for a Free, where nothing happens, unless freed bytes are overwritten: then what
// arrives in them must come after.
std::vector<int> frees_before_messages(const program::Program& p, const program::Expanded& expanded,
                                       const std::vector<char>& in_message);

}  // namespace quintet::exec
