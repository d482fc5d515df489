// Ranges of elements that a sum of squares or an update works on, as its attribute "ranges" has them: four
// numbers each, by operand and then by element.
#pragma once

#include <span>
#include <vector>

#include "program/program.h"

namespace quintet::program {

struct FlatRange {
  int64_t operand = 0;  // which of the gradients, and which of the updated groups
  int64_t first = 0, count = 0;
  bool decay = false;  // updates: with weight decay
};

std::vector<int64_t> to_attribute(std::span<const FlatRange> ranges);
std::vector<FlatRange> flat_ranges(const Instr& instr);

// How many groups an update has: as many as gradients, which are all its operands but the last, the scalars.
// Each has as many results as the others, behind those of the group before.
inline size_t updated_groups(const Instr& update) { return update.in.size() - 1; }
inline size_t results_of_group(const Instr& update) { return update.out.size() / updated_groups(update); }

}  // namespace quintet::program
