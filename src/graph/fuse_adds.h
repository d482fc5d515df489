// Fused adds: where the result of a matmul (or of a norm's backward, or of rows returned from experts) is
// used only to be added to a value that is computed earlier, that value becomes the last operand of the
// result's producer. Saves writing and reading the result once. Used by lowering (program/lower.cc) and by
// passes that would otherwise remove such an add.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace quintet::graph {

struct FusedAdds {
  std::vector<int> add_of;     // by node: the add that this node performs, or -1
  std::vector<char> absorbed;  // by node: this add is performed by another node
};

FusedAdds fuse_adds(const Graph& graph);
FusedAdds no_fused_adds(const Graph& graph);  // every add remains a node of its own

}  // namespace quintet::graph
