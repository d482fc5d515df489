// Lifetimes: a buffer's bytes are its own from the first to the last instruction that touches it. This pass
// finds out which buffers outlive their body and puts a Free behind the last use of each, so that memory can
// be checked instruction by instruction.
#pragma once

#include "program/program.h"

namespace quintet::program {

// Sets Scope::Micro on buffers that are written in the forward and used in the backward body, and inserts
// Free.
void insert_frees(Program& program);

}  // namespace quintet::program
