// Updates of whole matrices by Muon and Adafactor, computed once more in f64 from the gradients of a run.
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

// The parameters that Adafactor updates.
std::map<std::string, FactoredMatrices> factored_of(const graph::StepGraph& step);

// Adds a step of Adafactor, the update with number `update`, to the moves of the parameters in run.factored.
void add_factored_moves(LayoutRun& run, const std::vector<Tensor>& gradients,
                        const config::Optimizer& optimizer, const train::StepResult& result, int64_t update);

}  // namespace quintet::tools
