// Steps of very many micro-batches. From the second micro-batch on (in a pipeline: once it is full) a step
// repeats itself, and what it takes, sends and waits grows by the same amount with every further round. Such
// a step is simulated with two small numbers of micro-batches, and the rest follows in a straight line.
#pragma once

#include <vector>

#include "compiler/compile.h"
#include "config/recipe.h"

namespace quintet::plan {

struct Sample {
  config::Recipe recipe;  // the same with fewer micro-batches, or the recipe itself
  double weight = 1;      // of its figures in those of the recipe: weights of all samples add up to 1
};

// What all representatives of a step issue.
double instructions(const compiler::Ranks& ranks);
// Writes out the calls of their steps, which were compiled without.
void expand(compiler::Ranks& ranks);

// At most `limit` instructions are to be simulated at once; `instructions` is what the
// whole step issues.
std::vector<Sample> samples(const config::Recipe& recipe, double instructions, double limit);

}  // namespace quintet::plan
