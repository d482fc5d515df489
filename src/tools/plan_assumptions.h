// What `quintet plan` assumes where the user did not say: the cluster is this machine, and the software and
// kernels are those that would run on the cluster.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "plan/plan.h"

namespace quintet::tools {

// What the recipe would run on here: this machine's processors, or its GPUs. UserError where a recipe asks
// for GPUs and there are too few of a known kind: how long processors would take is not what was asked.
hardware::Cluster cluster_here(const config::Recipe& recipe, std::vector<std::string>& notes);

// Sets the software stack (`stack` by name; empty: this engine's on accelerators, none on a CPU), and the
// scratch and remarks of the kernels that would run the recipe on assumptions.cluster.
void assume_software(plan::Assumptions& assumptions, const std::string& stack, const config::Recipe& recipe);

}  // namespace quintet::tools
