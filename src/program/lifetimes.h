// Lifetimes: a buffer owns its bytes from the first to the last instruction that touches it. This pass
// determines which buffers outlive their body and inserts a Free after the last use of each, so that memory
// can be checked instruction by instruction.
#pragma once

#include "program/program.h"

namespace quintet::program {

// Sets Scope::Micro on buffers that several bodies of a micro-batch use, or that are sent between pipeline
// stages, and inserts Free. Bodies are in the order in which a micro-batch passes through them.
//
// gradient_blocks = 2: what the reduction of a block's gradients reads lasts until the next block's is
// issued, so that the next block is computed in other bytes while the reduction is in flight.
//
// keep_sent: what a message of values sends lasts until before the first instruction that waits for its
// result.
struct FreeOptions {
  int gradient_blocks = 1;
  bool keep_sent = false;
};
void insert_frees(Program& program, const FreeOptions& options = {});

}  // namespace quintet::program
