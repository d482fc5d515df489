// Weights that tensor parallelism divides in another way than their dims say (parallel.tp_column, tp_row,
// tp_replicate). Only weights of linear layers: their outputs and inputs are what can be divided.
#pragma once

#include <optional>

#include "graph/graph.h"
#include "layout/layout.h"

namespace quintet::layout {

// By weight and by gradient of one: how the tensor ranks divide it. UserError for a weight that no linear
// layer of a block reads, or whose divided dim is not a multiple of the ranks.
std::map<graph::ValueId, TensorSplit> tensor_splits(const graph::Graph& logical, const Layout& layout);

// Dims of w[out..., in...] that are outputs.
int produced_dims(const graph::Graph& logical, graph::ValueId weight);

// The atoms of a dim with this key when `divided` says whether it is the one that the tensor ranks divide.
AtomList split_atoms(const Layout& layout, graph::Dim key, bool divided);

// The weight that linear or linear_dx reads, or the gradient of one that linear_dw computes; invalid for
// other ops.
graph::ValueId weight_of_linear(const graph::Node& node);

// The direction (OpDef::dims) of linear, linear_dx or linear_dw that is divided; -1: none.
int split_direction(const graph::Node& node, const std::vector<graph::Type>& in,
                    const std::vector<graph::Type>& out, TensorSplit split);

}  // namespace quintet::layout
