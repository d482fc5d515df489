#include "graph/step_graph.h"

namespace quintet::graph {

std::vector<StateDecl> weight_states(const Graph& model, DType compute) {
  std::vector<StateDecl> states;
  for (const Param& p : model.params()) {
    const Value& v = model.value(p.value);
    states.push_back({.name = v.name,
                      .role = Role::Weight,
                      .type = {compute, v.type.dims},
                      .keep = Keep::Saved,
                      .param = v.name,
                      .slot = "param"});
  }
  return states;
}

}  // namespace quintet::graph
