// Output of `quintet check` and `quintet program`.
#pragma once

#include <string>
#include <vector>

#include "compiler/compile.h"
#include "config/problem.h"

namespace quintet::tools {

// The programs of a rank as in `quintet train`, including evaluation if the recipe has it.
compiler::Compiled compile_rank(const config::Recipe& recipe, int64_t rank,
                                const compiler::DisabledPasses& disabled = {});

// Warnings of a layout on a cluster (plan/layout_warnings.h), given as --cluster is. UserError if it has
// another number of devices than the recipe has ranks. None for an empty phrase.
std::vector<std::string> cluster_warnings(const config::Recipe& recipe, const std::string& cluster);

// The resolved recipe and the planned memory of rank 0.
std::string good_text(const config::Recipe& recipe, const compiler::Compiled& rank_0,
                      const std::vector<std::string>& warnings = {});
std::string good_json(const config::Recipe& recipe, const compiler::Compiled& rank_0,
                      const std::vector<std::string>& warnings = {});

// All problems of a recipe, or the message of another error.
std::string problems_json(const config::RecipeError& error);
std::string problems_json(const base::UserError& error);

// Numbers of a program: peak memory by class, FLOPs, and traffic per communicator.
std::string program_json(const program::Program& program, const program::Expanded& expanded);

}  // namespace quintet::tools
