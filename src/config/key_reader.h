// Reads the values of known keys into a recipe.
#pragma once

#include "config/leaves.h"
#include "config/recipe.h"
#include "config/report.h"

namespace quintet::config {

// Sets the fields whose keys are given. A value of the wrong type leaves its field unchanged and is reported.
void read_keys(Recipe& recipe, const Leaves& leaves, Report& report);

}  // namespace quintet::config
