// Decides what is a fault by brute force: byte by byte, pair by pair, by search for a cycle. The verifier is
// compared with this. Each function returns a description of the first fault, or an empty string.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "compiler/compile.h"

namespace quintet::program::testing {

using Range = std::pair<int64_t, int64_t>;               // bytes [first, second)
using Padding = std::map<BufferId, std::vector<Range>>;  // bytes of gradient buffers outside all parameters

// The padding of a compiled program's gradients, from its groups.
Padding padding_of(const compiler::Compiled& compiled);

// A byte is read that was not written since its buffer became live; a buffer is touched after its free, freed
// twice or not at all; two live buffers share a byte.
std::string memory_fault(const Program& p, const Expanded& e, const Padding& padding);

// Two accesses to one byte, one of them a write, that no chain of stream order and waits connects.
std::string race_fault(const Program& p, const Expanded& e);

// Members issue different sequences, or the graph of stream order, waits and meetings has a cycle; or that of
// the issue orders of all ranks over their collectives, without messages.
std::string world_fault(const std::vector<const Program*>& programs,
                        const std::vector<const Expanded*>& expanded);

}  // namespace quintet::program::testing
