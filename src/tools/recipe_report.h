// What `quintet check` and `quintet program` say about a recipe.
#pragma once

#include <string>

#include "compiler/compile.h"
#include "config/problem.h"

namespace quintet::tools {

// A rank's programs as `quintet train` would run them, evaluation included where the recipe has it.
compiler::Compiled compile_rank(const config::Recipe& recipe, int64_t rank);

// The resolved recipe with what rank 0 was planned to need.
std::string good_text(const config::Recipe& recipe, const compiler::Compiled& rank_0);
std::string good_json(const config::Recipe& recipe, const compiler::Compiled& rank_0);

// What is wrong with a recipe, all of it or, of other errors, the message.
std::string problems_json(const config::RecipeError& error);
std::string problems_json(const base::UserError& error);

// The program in numbers: memory by class at its peak, work, and what is sent over each communicator.
std::string program_json(const program::Program& program, const program::Expanded& expanded);

}  // namespace quintet::tools
