#include "graph/autodiff.h"

#include "base/error.h"

namespace quintet::graph {

bool GradContext::needs(ValueId input) const { return needed_[input.index()]; }

void GradContext::add(ValueId input, ValueId grad) {
  if (!needs(input)) return;
  if (Param* param = graph_.find_param(input)) {
    param->grads.push_back(grad);
    return;
  }
  const ValueId before = grads_[input.index()];
  // emit() may reallocate the table, so the entry is looked up after it.
  const ValueId sum = before.valid() ? emit(kAdd, {before, grad}, {}, Phase::B).front() : grad;
  grads_[input.index()] = sum;
}

std::vector<ValueId> GradContext::emit(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs,
                                       Phase phase) {
  std::vector<ValueId> out = graph_.add_node(op, std::move(inputs), std::move(attrs), phase, block_).outputs;
  grads_.resize(graph_.values().size());
  needed_.resize(graph_.values().size(), 0);
  return out;
}

void differentiate(Graph& graph, DType param_grad, const std::vector<std::pair<ValueId, ValueId>>& seeds) {
  const size_t forward_nodes = graph.nodes().size();
  std::vector<ValueId> grads(graph.values().size());
  GradContext context(graph, grads, param_grad, 0);

  // A value needs a gradient when it depends on a trainable parameter.
  context.needed_.assign(graph.values().size(), 0);
  for (const Param& p : graph.params()) context.needed_[p.value.index()] = p.trainable;
  for (const Node& node : graph.nodes())
    for (const ValueId in : node.inputs)
      if (context.needed_[in.index()])
        for (const ValueId out : node.outputs) context.needed_[out.index()] = 1;

  for (const auto& [value, grad] : seeds) context.add(value, grad);
  for (size_t i = forward_nodes; i-- > 0;) {
    const Node node = graph.nodes()[i];  // a copy: emitting nodes reallocates the vector
    bool flows = false;
    for (const ValueId out : node.outputs) flows |= context.grad(out).valid();
    if (!flows) continue;
    bool wanted = false;
    for (const ValueId in : node.inputs) wanted |= context.needs(in);
    if (!wanted) continue;
    QUINTET_CHECK(node.op->gradient != nullptr, "[{}] has no gradient rule", node.op->name);
    context.block_ = node.block;
    node.op->gradient(context, node);
  }
  for (const Param& p : graph.params())
    if (p.trainable && p.grads.empty())
      base::fail_user(
          "parameter {} gets no gradient from the loss; use it in the model or freeze it (optimizer.groups = "
          "[{{ match = \"{}\", update = false }}])",
          graph.value(p.value).name, graph.value(p.value).name);
}

}  // namespace quintet::graph
