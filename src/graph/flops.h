// FLOPs that a model requires, summed over the costs of its ops: the one count behind MFU, bounds and
// published throughputs.
#pragma once

#include "graph/graph.h"

namespace quintet::graph {

// Matmuls and attention of a graph, forward and backward. Operations that recompute something are left out.
struct Flops {
  double matmul = 0;          // expert matmuls included
  double expert_matmul = 0;   // rows past an expert's capacity included
  double attention = 0;       // unmasked pairs alone; the backward pass counts twice the forward pass
  double attention_runs = 0;  // as kernels run it: the backward pass computes the scores again
  double total() const { return matmul + attention; }
  Flops& operator+=(const Flops& other);
};

// By block label (Node::block).
std::vector<Flops> flops_by_block(const Graph& graph);
Flops flops_of(const Graph& graph);

}  // namespace quintet::graph
