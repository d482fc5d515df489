#include "graph/fuse_adds.h"

#include "graph/op.h"

namespace quintet::graph {

FusedAdds no_fused_adds(const Graph& graph) {
  const size_t count = graph.nodes().size();
  return {std::vector<int>(count, -1), std::vector<char>(count, 0)};
}

FusedAdds fuse_adds(const Graph& graph) {
  const std::vector<Node>& nodes = graph.nodes();
  FusedAdds out = no_fused_adds(graph);
  std::vector<int> uses(graph.values().size(), 0);
  for (const Node& node : nodes)
    for (const ValueId in : node.inputs) ++uses[in.index()];
  for (const Param& p : graph.params())
    for (const ValueId g : p.grads) ++uses[g.index()];

  for (size_t j = 0; j < nodes.size(); ++j) {
    const Node& add = nodes[j];
    if (add.op != &kAdd || add.row_group >= 0) continue;
    for (const size_t o : {size_t{1}, size_t{0}}) {
      const ValueId product = add.inputs[o], other = add.inputs[1 - o];
      const NodeId from = graph.value(product).producer, before = graph.value(other).producer;
      if (!from.valid() || product == other || uses[product.index()] != 1) continue;
      const Node& producer = nodes[from.index()];
      // In the same body, and the addend is computed before the matmul.
      if (!producer.op->takes_addend || producer.outputs[0] != product || producer.row_group >= 0 ||
          producer.phase != add.phase || producer.block != add.block || producer.repeat != add.repeat ||
          static_cast<int>(producer.inputs.size()) == producer.op->max_inputs || !before.valid() ||
          before.index() >= from.index() || out.add_of[from.index()] >= 0)
        continue;
      out.add_of[from.index()] = static_cast<int>(j);
      out.absorbed[j] = 1;
      break;
    }
  }
  return out;
}

}  // namespace quintet::graph
