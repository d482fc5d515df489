// The optimizer step as a logical graph, and the state that outlives a step. Room optim builds it from the
// model's parameters; the partitioner places it like any other graph.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "graph/graph.h"

namespace quintet::graph {

// The role of a state for its parameter, or for the model. In the order in which a rank stores the states of
// a parameter group.
enum class Role : uint8_t {
  Weight,      // read by matmuls
  Master,      // updated by the optimizer, where that is not the weight itself
  Moment,      // any per-element optimizer state
  Ema,         // an average of the weights over steps, equal to them at the start
  Gradient,    // after its reduction over ranks
  RouterBias,  // of a router that balances without a loss: belongs to no parameter, replicated on all ranks
  Scalar,      // a number that a step changes and the next one reads, replicated on all ranks
  Amax,        // largest magnitudes of quantised values in recent steps, replicated on all ranks
};

inline constexpr int kNumRoles = 8;

// State that the optimizer keeps in addition to weight, master and gradient.
constexpr bool is_optimizer_state(Role r) { return r == Role::Moment || r == Role::Ema; }

// Whether a checkpoint stores it.
enum class Keep : uint8_t {
  Saved,
  Derived,    // from another state: a rounded copy
  Transient,  // recreated in every step
};

enum class Encoding : uint8_t {
  Plain,
  Split,  // base/split_float.h: the weight is the upper half, and only the lower half is stored in addition
};

// A state of the model, the same in every layout: a row of a checkpoint. States of a parameter have its
// shape.
struct StateDecl {
  std::string name;  // "blocks.3.attn.wq.weight", "blocks.3.attn.wq.weight/adamw.m", "update_count"
  Role role = Role::Moment;
  Type type;  // logical dims and dtype
  Keep keep = Keep::Saved;
  Encoding encoding = Encoding::Plain;
  // Elements of the parameter, in its order, for which there is one number; 1: every one has its own.
  int64_t block = 1;
  bool of_squares = false;  // an average of squared gradients, compared by its root
  double initial = 0;       // Scalar: at the start of a run
  std::string param;        // name of its parameter; empty: the model's
  std::string slot;         // which of the parameter's states it is, the same for all parameters: "adamw.m"
  ValueId value;  // in the step graph, at the start of the step; invalid: the step does not touch it
};

// Of the bytes that are stored.
inline DType stored_dtype(const StateDecl& state) {
  return state.encoding == Encoding::Split ? DType::I16 : state.type.dtype;
}
inline int64_t stored_bytes(const StateDecl& state) {
  return (state.type.count() + state.block - 1) / state.block * base::size_of(stored_dtype(state));
}

// All parameters as weights that are read and never updated: the states of a model that is not trained.
std::vector<StateDecl> weight_states(const Graph& model, DType compute);

// By parameter: the name of its storage class; "" for all where there is only one. Parameters of a class have
// states of the same slots, so that they may be stored in one group. The name is that of the optimizer that
// the states belong to, or "stateless".
using StorageClasses = std::map<std::string, std::string, std::less<>>;

// By parameter: the largest block of its states, where one has more than an element. Storage is cut between
// blocks only.
using StateBlocks = std::map<std::string, int64_t, std::less<>>;

struct StepGraph {
  Graph graph;
  std::vector<StateDecl> states;
  ValueId loss;               // after the micro-batches: each rank has a term
  std::vector<ValueId> sums;  // likewise the model's step sums, in its order
  std::vector<int> state_of;  // by ValueId: index into states; -1 or past its end: no parameter's state

  const StateDecl* find(ValueId value) const {
    const bool known = value.index() < state_of.size() && state_of[value.index()] >= 0;
    return known ? &states[static_cast<size_t>(state_of[value.index()])] : nullptr;
  }
  StorageClasses storage_classes() const;
  StateBlocks state_blocks() const;
};

}  // namespace quintet::graph
