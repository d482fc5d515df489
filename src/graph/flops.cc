#include "graph/flops.h"

#include "graph/op.h"

namespace quintet::graph {

Flops& Flops::operator+=(const Flops& other) {
  matmul += other.matmul;
  expert_matmul += other.expert_matmul;
  attention += other.attention;
  attention_runs += other.attention_runs;
  return *this;
}

std::vector<Flops> flops_by_block(const Graph& graph) {
  std::vector<Flops> blocks(static_cast<size_t>(graph.num_blocks));
  for (const Node& node : graph.nodes()) {
    const OpDef& op = *node.op;
    const bool attention = op.op_class == OpClass::Attention;
    if (op.gemm == nullptr && !attention) continue;
    if (op.pass == OpPass::Forward && node.phase != Phase::F) continue;  // recomputed
    Flops& sum = blocks[static_cast<size_t>(node.block)];
    const std::vector<Type> in = input_types(graph, node);
    const double flops = op.cost(in, output_types(graph, node), node.attrs).flops;
    if (!attention) {
      sum.matmul += flops;
      if (op.op_class == OpClass::ExpertMatmul) sum.expert_matmul += flops;
      continue;
    }
    sum.attention_runs += flops;
    if (&op != &kAttentionDx) {
      sum.attention += flops;
    } else {
      // dO, Q, K, V: five matmuls run, two of them as wide as V; four belong to the gradient.
      const double qk = static_cast<double>(in[1].size(2)), v = static_cast<double>(in[3].size(2));
      sum.attention += flops * (2 * qk + 2 * v) / (3 * qk + 2 * v);
    }
  }
  return blocks;
}

Flops flops_of(const Graph& graph) {
  Flops sum;
  for (const Flops& block : flops_by_block(graph)) sum += block;
  return sum;
}

}  // namespace quintet::graph
