// Steps with very many micro-batches. From the second micro-batch on (in a pipeline: once it is full) a step
// is periodic, so its time, traffic and waits grow linearly with the number of periods. Such a step is
// simulated at two small micro-batch counts and extrapolated linearly.
#pragma once

#include <vector>

#include "compiler/compile.h"
#include "config/recipe.h"

namespace quintet::plan {

struct Sample {
  config::Recipe recipe;  // the original with fewer micro-batches, or the original itself
  double weight = 1;      // of its figures in the combined result; the weights of all samples add up to 1
};

// Total instructions issued in a step by all representative ranks.
double instructions(const compiler::Ranks& ranks);

// Recipes to simulate so that no simulation exceeds `limit` instructions; `instructions` is the count for the
// full step.
std::vector<Sample> samples(const config::Recipe& recipe, double instructions, double limit);

}  // namespace quintet::plan
