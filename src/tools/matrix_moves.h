// Muon's updates, computed once more in f64 from the momentum and the gradients of a run.
#pragma once

#include "graph/step_graph.h"
#include "tools/run_layout.h"

namespace quintet::tools {

// The parameters that Muon updates.
std::map<std::string, Matrices> matrices_of(const graph::StepGraph& step);

// Adds one step of Muon to the moves of the parameters in run.matrices. `moments` are those after the step,
// `gradients` those of the step before clipping.
void add_matrix_moves(LayoutRun& run, const std::vector<Moments>& moments,
                      const std::vector<Tensor>& gradients, const config::Optimizer& optimizer,
                      const train::StepResult& result);

}  // namespace quintet::tools
