// Lifetimes: a buffer's bytes are its own from the first to the last instruction that touches it. This pass
// finds out which buffers outlive their body and puts a Free behind the last use of each, so that memory can
// be checked instruction by instruction.
#pragma once

#include "program/program.h"

namespace quintet::program {

// Sets Scope::Micro on buffers that several bodies of a micro-batch use, or that travel between pipeline
// stages, and inserts Free. Bodies stand in the order in which a micro-batch passes through them.
void insert_frees(Program& program);

}  // namespace quintet::program
