// Memory of a plan, read from the compiled programs.
#pragma once

#include "compiler/compile.h"
#include "plan/plan.h"
#include "sim/durations.h"

namespace quintet::plan {

// `ranks` holds one rank per pipeline position; their programs need not be expanded. `machine` gives the
// expected number of rows per expert rank, `copies` what saving takes of the host's memory at each position.
Memory memory_of(const compiler::Ranks& ranks, const sim::Machine& machine,
                 const std::vector<program::SavingMemory>& copies);

// Expert-side row buffers that are live at the program's peak: bytes reserved for them, and bytes used when a
// rank receives the expected number of rows.
struct RoutedBytes {
  int64_t room = 0, expected = 0;
};
RoutedBytes routed_at_peak(const program::Program& program, const sim::Machine& machine);

}  // namespace quintet::plan
