// Scratch of the CUDA backend's kernels: the single source. Compiled in every build, so that a plan made
// without CUDA matches the executor to the byte.
#pragma once

#include "program/program.h"

namespace quintet::exec::cuda {

// A function of the instruction alone; 0 if it needs none.
int64_t workspace_bytes(const program::Instr& instr);

// The ops that have scratch.
std::vector<const graph::OpDef*> ops_with_workspace();

}  // namespace quintet::exec::cuda
