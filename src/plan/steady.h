// Steps of very many micro-batches. From the second micro-batch on (in a pipeline: once it is full) a step
// repeats itself, and what it takes, sends and waits grows by the same amount with every further round. Such
// a step is simulated with two small numbers of micro-batches, and the rest follows in a straight line.
#pragma once

#include <vector>

#include "config/recipe.h"

namespace quintet::plan {

struct Sample {
  config::Recipe recipe;  // the same with fewer micro-batches, or the recipe itself
  double weight = 1;      // of its figures in those of the recipe: weights of all samples add up to 1
};

// At most `limit` instructions are to be simulated at once; `instructions` is what all representatives of the
// whole step issue.
std::vector<Sample> samples(const config::Recipe& recipe, double instructions, double limit);

}  // namespace quintet::plan
