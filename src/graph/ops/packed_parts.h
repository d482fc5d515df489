// The gradients of packed weights (ops/packed.cc).
#pragma once

#include "graph/ops/support.h"

namespace quintet::graph {

// A gradient of packed weights as those of each: the attribute `parts` names and sizes their first dims,
// whose sum is that of `packed`. Refused unless there are two or more.
std::vector<Type> split_parts(std::string_view op, const Type& packed, const Attrs& attrs);

}  // namespace quintet::graph
