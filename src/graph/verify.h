// Invariants of every graph, checked after every pass. A failure is a bug, not a user's mistake:
// InternalError "after <pass>: node %12 linear: ...", with the node named by its first result as in the text
// form.
//
// - an op has a legal number of operands, all defined before their use; one node produces each result
// - attributes are exactly those of the op's list, by name and kind
// - result types match the op's inference (logical graphs; ops that change placements are exempt)
// - a phase uses no results of a later one: F none of B or W, and B none of W, because W may be moved after
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
