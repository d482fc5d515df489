// What a layout does badly on a cluster, known from sizes alone: nothing is compiled.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"
#include "hardware/cluster.h"

namespace quintet::plan {

// Ranks are placed in order, tensor-parallel groups innermost: a group whose members are not all in one
// domain sends every block's sums over the outer link.
bool tensor_groups_cross(const config::Parallel& parallel, const hardware::Cluster& cluster);

// One sentence each, with the values that would be better. Empty: nothing to say.
std::vector<std::string> layout_warnings(const config::Parallel& parallel, const hardware::Cluster& cluster);

}  // namespace quintet::plan
