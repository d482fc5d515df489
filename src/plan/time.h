// Time of a plan: a simulation of one rank's program per pipeline stage.
#pragma once

#include "plan/plan.h"
#include "plan/timeline.h"
#include "sim/durations.h"

namespace quintet::plan {

// `ranks` must be compiled and expanded for `recipe`.
Time time_of(const config::Recipe& recipe, const Assumptions& assumptions, const compiler::Ranks& ranks,
             const sim::Simulation& simulation);

// The machine on which a plan's programs are simulated.
sim::Machine machine_of(const Assumptions& assumptions);

sim::Simulation simulate(const Assumptions& assumptions, const compiler::Ranks& ranks);

// The sum of weight * figures over the samples (sampled_steps.h); rates are recomputed from the sums.
Time combine(const std::vector<std::pair<double, Time>>& samples);

}  // namespace quintet::plan
