// Memory of a plan, read off the programs.
#pragma once

#include "compiler/compile.h"
#include "plan/plan.h"
#include "sim/durations.h"

namespace quintet::plan {

// `ranks` are one of every pipeline place; their programs need not be expanded. The machine says how many
// rows of experts are expected.
Memory memory_of(const compiler::Ranks& ranks, const sim::Machine& machine);

// Of the buffers that hold rows on the experts' side, those that are alive when the program is fullest: the
// room that is planned for them, and what of it is filled when a rank gets as many rows as are expected.
struct RoutedBytes {
  int64_t room = 0, expected = 0;
};
RoutedBytes routed_at_peak(const program::Program& program, const sim::Machine& machine);

}  // namespace quintet::plan
