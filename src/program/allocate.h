// The allocator: every buffer gets its offset in the rank's one arena before the first step. Persistent
// buffers are at the bottom; above them transient ones share bytes where their lifetimes, in issue order, do
// not overlap. Streams may run ahead of the issue order: the waits that make the reuse safe are found
// afterwards, by bytes (expand.h).
#pragma once

#include <array>

#include "program/program.h"

namespace quintet::program {

inline constexpr int64_t kBufferAlign = 64;

// share = false: every transient buffer has bytes of its own, so that a result that then changes points at a
// lifetime or a wait.
void allocate(Program& program, bool share = true);

// The contents of the arena at its fullest: bytes by class, and the instruction at which that is. Found by
// walking the calls in issue order, so that each micro-batch of a pipeline counts for as long as it is in
// flight.
struct Peak {
  std::array<int64_t, kNumMemoryClasses> by_class{};
  int64_t live_bytes = 0;  // sum of live buffers; the arena may be larger by fragmentation
  int64_t arena_bytes = 0;
  int body = 0, instr = 0;
};
Peak peak_of(const Program& program);

}  // namespace quintet::program
