// Refuses what would take long to compile and can never run.
#pragma once

#include "config/recipe.h"

namespace quintet::compiler {

// UserError, with the likely slip, when a micro-batch has more tokens per rank than any memory holds.
void require_sane_micro_batch(const config::Recipe& recipe);

}  // namespace quintet::compiler
