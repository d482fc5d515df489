// The optimizer's step as a logical graph, and what outlives a step. Room optim builds it from the model's
// parameters; the partitioner places it like any other graph.
#pragma once

#include "graph/graph.h"

namespace quintet::graph {

// What a state is to the parameter that it belongs to.
enum class Role : uint8_t {
  Weight,    // what matmuls read
  Master,    // what the optimizer updates, where that is not the weight itself
  Gradient,  // after its reduction over ranks
  Moment,    // whatever an optimizer keeps per element
};

// Whether a checkpoint holds it.
enum class Keep : uint8_t {
  Saved,
  Derived,    // from another state: a rounded copy
  Transient,  // made anew in every step
};

// A state of a parameter's shape, the same in every layout.
struct StateDecl {
  std::string name;  // "blocks.3.attn.wq.weight", "blocks.3.attn.wq.weight/adamw.m"
  Role role = Role::Moment;
  Type type;  // logical dims and dtype
  Keep keep = Keep::Saved;
  bool of_squares = false;  // an average of squared gradients, compared by its root
  std::string param;        // name of the parameter that it belongs to
  std::string slot;         // which of the parameter's states it is, the same for all parameters: "adamw.m"
  ValueId value;            // in the step graph, as the step finds it; invalid: a frozen weight
};

struct StepGraph {
  Graph graph;
  std::vector<StateDecl> states;
  ValueId loss;               // as the micro-batches left it: each rank has a share
  std::vector<ValueId> sums;  // the same of the model's step sums, in its order
  std::vector<int> state_of;  // by ValueId: index into states; -1 or beyond its end: none

  const StateDecl* find(ValueId value) const {
    const bool known = value.index() < state_of.size() && state_of[value.index()] >= 0;
    return known ? &states[static_cast<size_t>(state_of[value.index()])] : nullptr;
  }
};

}  // namespace quintet::graph
