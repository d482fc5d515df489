// Lifetimes: a buffer owns its bytes from the first to the last instruction that touches it. This pass
// determines which buffers outlive their body and inserts a Free after the last use of each, so that memory
// can be checked instruction by instruction.
#pragma once

#include "program/program.h"

namespace quintet::program {

// Sets Scope::Micro on buffers that several bodies of a micro-batch use, or that are sent between pipeline
// stages, and inserts Free. Bodies are in the order in which a micro-batch passes through them.
void insert_frees(Program& program);

}  // namespace quintet::program
