// Scratch of the CUDA backend's kernels: the one place that says it. Compiled in every build, so that a plan
// made without CUDA is that of the executor, to the byte.
#pragma once

#include "program/program.h"

namespace quintet::exec::cuda {

// A function of the instruction alone; 0 for what needs none.
int64_t workspace_bytes(const program::Instr& instr);

// The ops that have scratch.
std::vector<const graph::OpDef*> ops_with_workspace();

}  // namespace quintet::exec::cuda
