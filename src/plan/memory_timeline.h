// How full a device is over the step: live bytes by class when its compute stream reaches each instruction.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "sim/simulate.h"

namespace quintet::plan {

// Bytes are those of the issue order, which is what the allocator plans; the clock is the compute stream's.
// At most `points` points, evenly over the step: of each stretch its fullest moment, so that the fullest of
// all is the program's peak (program::peak_of, evaluation left out).
std::vector<MemoryPoint> memory_timeline(const sim::Rank& rank, const std::vector<sim::Span>& spans,
                                         double end, size_t points = 240);

// "backward, block 31, attention_dx"
std::string instruction_words(const program::Program& program, int body, int instr);

}  // namespace quintet::plan
