// Learning rate and weight decay as functions of the run's progress. Both are evaluated at the end of a step:
// in a warm-up of 4 steps, step 1 uses a quarter of the rate and step 4 the full rate; the last step of the
// run uses the floor.
#pragma once

#include "config/batch_ramp.h"
#include "config/recipe.h"

namespace quintet::optim {

// The rate of the step that ends at `done`, in a run that ends at `end`. With x the progress so far in the
// phase's unit, w the length of the warm-up and d that of the decay:
//   warm-up       lr x / w, until x = w
//   linear        p = (x - w) / d, capped at 1; floor + (1 - floor) (1 - p)
//   cosine        the same p; floor + (1 - floor) (1 + cos(pi p)) / 2
//   inverse_sqrt  the larger of floor and sqrt(w / x)
//   wsd           1 until the last d of the run, then with p = (x - (end - d)) / d
//                 floor + (1 - floor) f(p); f is 1 - p, (1 + cos(pi p)) / 2, 2 / 2^p - 1 or 1 - sqrt(p)
double learning_rate(const config::Optimizer& optimizer, const config::RunPoint& done,
                     const config::RunPoint& end);

// The factor on that rate in a step of so many sequences.
double batch_factor(const config::LrScaling& scaling, int64_t sequences);

// The factor on weight decay: from start_ratio (before the first step) to final_ratio, linear or half a
// cosine over the steps of the run.
double weight_decay_ratio(const config::Optimizer& optimizer, const config::RunPoint& done,
                          const config::RunPoint& end);

}  // namespace quintet::optim
