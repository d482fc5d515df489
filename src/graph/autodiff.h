// Reverse-mode differentiation on the logical graph. Collectives never need a gradient: they are inserted
// afterwards.
#pragma once

#include "graph/op.h"

namespace quintet::graph {

// A gradient rule's view of the node that it differentiates.
class GradContext {
 public:
  GradContext(Graph& graph, std::vector<ValueId>& grads, DType param_grad, int block)
      : graph_(graph), grads_(grads), param_grad_(param_grad), block_(block) {}

  ValueId grad(ValueId output) const { return grads_[output.index()]; }  // invalid: no gradient
  bool needs(ValueId input) const;        // false for inputs, frozen parameters and what depends only on them
  void add(ValueId input, ValueId grad);  // adds to earlier contributions
  // Emits a node of the backward pass; `Phase::W` for gradients of parameters.
  std::vector<ValueId> emit(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, Phase phase);
  DType param_grad() const { return param_grad_; }
  const Graph& graph() const { return graph_; }

 private:
  friend void differentiate(Graph&, DType, const std::vector<std::pair<ValueId, ValueId>>&);
  Graph& graph_;
  std::vector<ValueId>& grads_;
  std::vector<char> needed_;
  DType param_grad_;
  int block_;
};

// Appends the backward pass and fills Param::grads. It starts from `seeds`, pairs of a value and its gradient
// that the graph has already computed (the head does so in the forward phase). `param_grad` is the type of
// parameter gradients.
void differentiate(Graph& graph, DType param_grad, const std::vector<std::pair<ValueId, ValueId>>& seeds);

}  // namespace quintet::graph
