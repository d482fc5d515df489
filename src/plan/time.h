// Time of a plan: the programs of one rank of every pipeline stage, simulated.
#pragma once

#include "plan/plan.h"
#include "plan/timeline.h"
#include "sim/durations.h"

namespace quintet::plan {

// FLOPs of a micro-batch over all devices that the model asks for: products and attention, forward and
// backward, without what is computed again. Causal attention counts the pairs that its mask leaves, its
// backward pass twice its forward pass (that the scores are computed again there is no work of the model's).
double model_flops(const graph::Graph& model);

// `ranks` are compiled and expanded for `recipe`.
Time time_of(const config::Recipe& recipe, const Assumptions& assumptions, const compiler::Ranks& ranks,
             const sim::Simulation& simulation);

// What a plan's programs are simulated on.
sim::Machine machine_of(const Assumptions& assumptions);

sim::Simulation simulate(const Assumptions& assumptions, const compiler::Ranks& ranks);

// sum of weight * figures over samples (sampled_steps.h); figures that are rates follow from them.
Time combine(const std::vector<std::pair<double, Time>>& samples);

}  // namespace quintet::plan
