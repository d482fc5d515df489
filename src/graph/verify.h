// What must hold of every graph, checked after every pass. A failure is ours, not the user's: InternalError
// "after <pass>: node %12 linear: ...", with the node named by its first result as in the text form.
//
// - an op's operands are as many as it takes and are defined before their use; a result is given by one node
//   only
// - attributes are exactly those of the op's list, by name and kind
// - result types are the op's own inference (logical graphs; ops that change placements are exempt)
// - a phase uses no results of a later one: F none of B or W, and B none of W, for W may be moved behind
//   every B
// - blocks are labelled 0 .. num_blocks - 1
// - names of inputs and parameters are unique, and every parameter has one entry in Graph::params()
// - gradients are results with their parameter's dims (logical graphs); frozen parameters have none
// - the loss is a scalar
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace quintet::graph {

// `after` is the pass that made the graph. `local`: the graph of one rank, where sizes follow the placement.
void verify(const Graph& graph, std::string_view after, bool local = false);

}  // namespace quintet::graph
