// Defaults of `quintet plan`: the cluster is this machine, and the software and kernels are those that would
// run on the cluster.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "plan/plan.h"

namespace quintet::tools {

// This machine's CPU or GPUs, whichever the recipe uses. UserError when the recipe needs GPUs and there are
// too few of a known model: a plan for the CPU would answer a different question.
hardware::Cluster cluster_here(const config::Recipe& recipe, std::vector<std::string>& notes);

// Sets the software stack (`stack` by name; empty: this engine on accelerators, none on a CPU), and the
// scratch sizes and remarks of the kernels that would run the recipe on assumptions.cluster.
void assume_software(plan::Assumptions& assumptions, const std::string& stack, const config::Recipe& recipe);

// Keys that a query sees on average where sequences are packed with documents of these lengths, repeated in
// turn and cut where a sequence ends.
double mean_visible_keys(const std::vector<int64_t>& lengths, const config::Recipe& recipe);

}  // namespace quintet::tools
