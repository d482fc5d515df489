// The header's lines about the context and expert axes, and what one block of the model sends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/compile.h"

namespace quintet::train {

struct HeaderLine {
  std::string label, text;
};

// Collectives that a rank's program issues for one block and one micro-batch. Bytes are those of
// program::sent_bytes: for exchanges of rows between tokens and experts the most that can be.
struct BlockTraffic {
  int64_t forward = 0, backward = 0;
  double forward_bytes = 0, backward_bytes = 0;
};
// Whether a group is of some ranks along `outer` and no other atoms.
bool is_inside(const layout::AtomList& atoms, const layout::AtomList& outer);
// Of the collectives that move activations (not parameters and gradients) those that `take` wants, in the
// block with label `block`.
BlockTraffic block_traffic(const program::Program& program, int block,
                           const std::function<bool(const program::Instr&, const layout::AtomList&)>& take);

// "3 steps", "1 step".
std::string counted(int64_t n, std::string_view what, std::string_view plural = "s");

// cp > 1: the method, what it sends, and whether it is what "auto" takes.
std::vector<HeaderLine> context_lines(const config::Recipe& recipe, const compiler::Compiled& compiled);
// Models with experts: how many, the router, capacity, and what ep and etp amount to.
std::vector<HeaderLine> expert_lines(const config::Recipe& recipe, const compiler::Compiled& compiled);

}  // namespace quintet::train
