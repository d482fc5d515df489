// Whether a run fits this machine, before anything is allocated.
#pragma once

#include <optional>

#include "compiler/compile.h"
#include "config/recipe.h"
#include "exec/executor.h"

namespace quintet::train {

// What memory.recompute = "fit" comes to, found once for all ranks of a process; empty for other recipes.
std::optional<compiler::Fit> find_fit(const config::Recipe& recipe, const compiler::ModelFn& model,
                                      int threads);

// UserError with the numbers when the planned memory of the ranks that share some is more than that. It plans
// rank 0; the ranks of a layout differ by little. Where it is unknown nothing is refused.
void require_memory(const config::Recipe& recipe, const compiler::ModelFn& model, int threads,
                    const exec::SharedMemory& memory, const std::optional<compiler::Fit>& fit = {});

}  // namespace quintet::train
