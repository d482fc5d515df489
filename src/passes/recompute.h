// Recompute: values of the forward pass that the backward pass reads are computed again there instead of
// being kept. The clones are the same ops on the same values, so gradients are bit-equal; a collective inside
// is issued again, on the same values.
//
// Numerics-preserving. Never recomputed: values that another block reads (block boundaries: these are what
// recomputation starts from), decisions and running sums (OpDef::keep), and the head's row group, which has
// no backward.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"
#include "graph/graph.h"

namespace quintet::passes {

// By node of a graph: whether it is selected. Empty: none.
using Marks = std::vector<char>;

// The nodes that may be recomputed at all.
Marks recomputable(const graph::Graph& graph);

// Those that the recipe selects. Not for "fit", which the compiler decides (fit_recompute.h).
// `stage_of_block`, by block label, is read for memory.recompute_first; empty: one stage.
Marks chosen(const graph::Graph& graph, const config::Memory& policy,
             const std::vector<int>& stage_of_block = {});

// The graph with marked nodes recomputed. Marks on nodes that may not be recomputed are ignored.
graph::Graph recompute(const graph::Graph& graph, const Marks& marks);

// The recipe's word for the class of an op (memory.recompute_ops); empty: it has none.
std::string_view word_of(const graph::OpDef& op);

}  // namespace quintet::passes
