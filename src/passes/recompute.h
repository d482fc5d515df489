// Recompute: what the backward pass reads of the forward pass is computed again there instead of being kept.
// The clones are the same ops on the same values, so gradients are bit-equal; a collective inside is issued
// again.
//
// Numerics-preserving. What is never recomputed: values that another block reads (block boundaries: keeping
// those is the point), and the head's row group, which has no backward.
#pragma once

#include "config/recipe.h"
#include "graph/graph.h"

namespace quintet::passes {

graph::Graph recompute(const graph::Graph& graph, const config::Memory& policy);

}  // namespace quintet::passes
