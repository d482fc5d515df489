// The allocator: every buffer gets its offset in the rank's one arena before the first step. Persistent
// buffers stand at the bottom; above them transient ones share bytes where their lifetimes, in issue order,
// do not meet. Streams may run ahead of the issue order: the waits that make the reuse safe are found
// afterwards, by bytes (expand.h).
#pragma once

#include <array>

#include "program/program.h"

namespace quintet::program {

inline constexpr int64_t kBufferAlign = 64;

void allocate(Program& program);

// What the arena holds when it is fullest: bytes by class, and the instruction at which that is. Found by
// going through the calls in issue order, so that the micro-batches of a pipeline count as long as each is
// under way.
struct Peak {
  std::array<int64_t, kNumMemoryClasses> by_class{};
  int64_t live_bytes = 0;  // sum of live buffers; the arena may be larger by fragmentation
  int64_t arena_bytes = 0;
  int body = 0, instr = 0;
};
Peak peak_of(const Program& program);

}  // namespace quintet::program
