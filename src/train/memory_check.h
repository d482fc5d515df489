// Checks that a run fits in memory before anything is allocated.
#pragma once

#include <optional>

#include "compiler/compile.h"
#include "config/recipe.h"
#include "exec/executor.h"

namespace quintet::train {

// Resolves memory.recompute = "fit" once for all ranks of a process; empty for other settings.
std::optional<compiler::Fit> find_fit(const config::Recipe& recipe, const compiler::ModelFn& model,
                                      int threads, const compiler::DisabledPasses& disabled = {});

// UserError, with the numbers, when the planned memory of the ranks that share `memory` exceeds it: the
// arena, and what saving takes of the host's memory (program/saved_bytes.h). Plans rank 0 only; ranks of a
// layout differ by little. Unknown memory (0 bytes) passes. `host`: what the ranks share of the host, on a
// GPU.
void require_memory(const config::Recipe& recipe, const compiler::ModelFn& model, int threads,
                    const exec::SharedMemory& memory, const std::optional<compiler::Fit>& fit = {},
                    const compiler::DisabledPasses& disabled = {}, const exec::SharedMemory& host = {});

// Whether the planned memory is the most that a step, or a rank of this rank's class, can touch, and others
// may touch less (Summary::planned_is_bound).
bool plan_is_bound(const compiler::Compiled& compiled);

}  // namespace quintet::train
