// The optimizer step as a logical graph, and the state that outlives a step. Room optim builds it from the
// model's parameters; the partitioner places it like any other graph.
#pragma once

#include "graph/graph.h"

namespace quintet::graph {

// The role of a state for its parameter.
enum class Role : uint8_t {
  Weight,    // read by matmuls
  Master,    // updated by the optimizer, where that is not the weight itself
  Gradient,  // after its reduction over ranks
  Moment,    // any per-element optimizer state
};

// Whether a checkpoint stores it.
enum class Keep : uint8_t {
  Saved,
  Derived,    // from another state: a rounded copy
  Transient,  // recreated in every step
};

// A state with a parameter's shape, the same in every layout.
struct StateDecl {
  std::string name;  // "blocks.3.attn.wq.weight", "blocks.3.attn.wq.weight/adamw.m"
  Role role = Role::Moment;
  Type type;  // logical dims and dtype
  Keep keep = Keep::Saved;
  bool of_squares = false;  // an average of squared gradients, compared by its root
  std::string param;        // name of its parameter
  std::string slot;         // which of the parameter's states it is, the same for all parameters: "adamw.m"
  ValueId value;            // in the step graph, at the start of the step; invalid: a frozen weight
};

struct StepGraph {
  Graph graph;
  std::vector<StateDecl> states;
  ValueId loss;               // after the micro-batches: each rank has a term
  std::vector<ValueId> sums;  // likewise the model's step sums, in its order
  std::vector<int> state_of;  // by ValueId: index into states; -1 or past its end: none

  const StateDecl* find(ValueId value) const {
    const bool known = value.index() < state_of.size() && state_of[value.index()] >= 0;
    return known ? &states[static_cast<size_t>(state_of[value.index()])] : nullptr;
  }
};

}  // namespace quintet::graph
