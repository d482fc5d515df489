// State of a whole model, summed over the states that its step graph declares. Plans read a rank's bytes from
// its program; this is for explanations and for features that the engine does not run yet.
#pragma once

#include <array>

#include "graph/step_graph.h"

namespace quintet::plan {

struct ModelState {
  struct Sum {
    int64_t bytes = 0, elements = 0;
  };
  std::array<Sum, graph::kNumRoles> of_role{};  // before any layout shards or replicates it

  const Sum& of(graph::Role role) const { return of_role[static_cast<size_t>(role)]; }
  int64_t optimizer_bytes() const;  // masters and moments
  int64_t parameter_bytes() const;  // all states of parameters
  // Bytes of a rank when ZeRO stage `zero` shards over `ranks` and nothing else shards the model.
  double on_rank(int zero, double ranks) const;
  // For a trained parameter: its weight, gradient, master and moments.
  double bytes_per_trained_parameter() const;
};

ModelState state_of(const std::vector<graph::StateDecl>& states);

}  // namespace quintet::plan
