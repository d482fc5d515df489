// Memory use over the step: live bytes by class at the moment the compute stream reaches each instruction.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "sim/simulate.h"

namespace quintet::plan {

// Bytes follow issue order, which is what the allocator plans; the clock is the compute stream's. Returns at
// most `points` points, evenly spaced. Each is the maximum of its interval, so the overall maximum equals the
// program's peak (program::peak_of, without evaluation).
std::vector<MemoryPoint> memory_timeline(const sim::Rank& rank, const std::vector<sim::Span>& spans,
                                         double end, size_t points = 240);

// "backward, block 31, attention_dx"
std::string instruction_words(const program::Program& program, int body, int instr);

}  // namespace quintet::plan
