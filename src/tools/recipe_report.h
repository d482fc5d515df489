// Output of `quintet check` and `quintet program`.
#pragma once

#include <string>

#include "compiler/compile.h"
#include "config/problem.h"

namespace quintet::tools {

// The programs of a rank as in `quintet train`, including evaluation if the recipe has it.
compiler::Compiled compile_rank(const config::Recipe& recipe, int64_t rank);

// The resolved recipe and the planned memory of rank 0.
std::string good_text(const config::Recipe& recipe, const compiler::Compiled& rank_0);
std::string good_json(const config::Recipe& recipe, const compiler::Compiled& rank_0);

// All problems of a recipe, or the message of another error.
std::string problems_json(const config::RecipeError& error);
std::string problems_json(const base::UserError& error);

// Numbers of a program: peak memory by class, FLOPs, and traffic per communicator.
std::string program_json(const program::Program& program, const program::Expanded& expanded);

}  // namespace quintet::tools
