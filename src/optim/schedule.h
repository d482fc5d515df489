// The learning rate as a function of the step.
#pragma once

#include "config/recipe.h"

namespace quintet::optim {

// Rate of step `step` (counted from 0) in a run of `steps`. Warm-up rises linearly and reaches the full rate
// at its last step: step s < warmup has rate lr * (s + 1) / warmup.
double learning_rate(const config::Optimizer& optimizer, int64_t step, int64_t steps);

}  // namespace quintet::optim
