// Sums that are made on the way: where the result of a matmul (or of a norm's backward, or of rows that come
// back from experts) exists only to be added to a value that is there before it, that value becomes a last
// operand of the result's maker. Saves writing and reading the result once. Lowering asks for them
// (program/lower.cc), and passes that would take such an add away.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace quintet::graph {

struct FusedAdds {
  std::vector<int> add_of;     // by node: the add that this node makes on the way, or -1
  std::vector<char> absorbed;  // by node: this add is made by another node
};

FusedAdds fuse_adds(const Graph& graph);

}  // namespace quintet::graph
