// Recompute: values of the forward pass that the backward pass reads are computed again there instead of
// being kept. The clones are the same ops on the same values, so gradients are bit-equal; a collective inside
// is issued again, on the same values.
//
// Numerics-preserving. Never recomputed: values that another chunk of blocks reads (boundaries: these are
// what recomputation starts from; a chunk is one block unless memory.recompute_chunk says otherwise),
// decisions and running sums (OpDef::keep), and the head's row group, which has no backward.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"
#include "graph/graph.h"

namespace quintet::passes {

// By node of a graph: whether it is selected. Empty: none.
using Marks = std::vector<char>;

// By block label: the chunk that a block belongs to. Chunks end where a stage does. Empty: each block is one.
using Chunks = std::vector<int>;
Chunks chunks_of(const graph::Graph& graph, const config::Memory& policy,
                 const std::vector<int>& stage_of_block = {});

// The nodes that may be recomputed at all.
Marks recomputable(const graph::Graph& graph, const Chunks& chunks = {});

// Those that the recipe selects. Not for "fit", which the compiler decides (fit_recompute.h).
// `stage_of_block`, by block label, is read for memory.recompute_first and recompute_chunk; empty: one stage.
Marks chosen(const graph::Graph& graph, const config::Memory& policy,
             const std::vector<int>& stage_of_block = {});

// The graph with marked nodes recomputed. Marks on nodes that may not be recomputed are ignored.
graph::Graph recompute(const graph::Graph& graph, const Marks& marks, const Chunks& chunks = {});

// The recipe's word for the class of an op (memory.recompute_ops); empty: it has none.
std::string_view word_of(const graph::OpDef& op);

}  // namespace quintet::passes
