// The two halves of problem_codes().
#pragma once

#include "config/codes.h"

namespace quintet::config {

std::span<const ProblemCode> recipe_codes();  // rules of recipes
std::span<const ProblemCode> error_codes();   // everything else

}  // namespace quintet::config
