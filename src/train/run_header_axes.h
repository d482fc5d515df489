// The header lines for context and expert parallelism, and the traffic of one block.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/plural.h"
#include "compiler/compile.h"

namespace quintet::train {

struct HeaderLine {
  std::string label, text;
};

// Collectives that a rank's program issues per block and micro-batch. Bytes are those of program::sent_bytes;
// for expert exchanges they are upper bounds.
struct BlockTraffic {
  int64_t forward = 0, backward = 0;
  double forward_bytes = 0, backward_bytes = 0;
};
// Whether `atoms` is not empty and all of its atoms are in `outer`.
bool is_inside(const layout::AtomList& atoms, const layout::AtomList& outer);
// Counts the collectives of block `block` that move activations (not parameters or gradients) and that `take`
// accepts.
BlockTraffic block_traffic(const program::Program& program, int block,
                           const std::function<bool(const program::Instr&, const layout::AtomList&)>& take);

using base::counted;

// cp > 1: the method, its traffic, and whether "auto" would choose it.
std::vector<HeaderLine> context_lines(const config::Recipe& recipe, const compiler::Compiled& compiled);
// Models with experts: their number, the router, capacity, and the effect of ep and etp.
std::vector<HeaderLine> expert_lines(const config::Recipe& recipe, const compiler::Compiled& compiled);

}  // namespace quintet::train
