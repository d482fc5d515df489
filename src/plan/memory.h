// Memory of a plan, read off the programs.
#pragma once

#include "compiler/compile.h"
#include "plan/plan.h"

namespace quintet::plan {

// `ranks` are one of every pipeline place; their programs need not be expanded.
Memory memory_of(const compiler::Ranks& ranks, const hardware::Cluster& cluster);

}  // namespace quintet::plan
