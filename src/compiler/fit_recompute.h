// memory.recompute = "fit": the least recompute that makes every rank's planned memory fit memory.budget.
//
// Pipeline ranks are fitted independently, because a block's policy changes only the memory of its own rank.
// Blocks have levels of recompute (passes/recompute_levels.h); each step to the next level has the bytes it
// saves on a rank, times the micro-batches in flight, and the time it costs. Times come from the local graph
// and the rough rates below: they determine the order of trials, never whether a policy fits. Steps are
// sorted by bytes per time (ties: earlier blocks first, because the last block's activations are read again
// immediately); bisection finds the shortest prefix that fits; then single blocks recompute less, or trade
// with others, as long as that saves time. Whether a policy fits is decided by the compiler's plan, to the
// byte.
//
// The result is a pure function of the recipe, the model and the backend's scratch sizes; equal on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "passes/recompute_levels.h"

namespace quintet::compiler {

struct Compiled;
struct CompileOptions;

// Rates of a current CPU. Only their ratios matter.
struct RoughRates {
  double flops_per_nano = 100;
  double bytes_per_nano = 20;      // to and from memory
  double sent_bytes_per_nano = 5;  // between ranks
};

// A recompute policy: the nodes of the model's graph that are recomputed.
struct Fit {
  passes::Marks marks;
  int64_t budget = 0;                 // limit for every program; 0: a trial
  std::vector<int64_t> planned = {};  // arena bytes by pipeline rank, of its largest program
  int64_t nanos = 0;      // extra time by the rough rates, per micro-batch of the slowest pipeline rank
  std::string text = {};  // "12 of 32 blocks recompute norm and activation, +1.8 % FLOPs, planned ..."
};

// UserError, with the numbers, when even maximal recompute does not fit.
Fit fit_recompute(const config::Recipe& recipe, const CompileOptions& options);

// Cost of the model's ops and values on a rank. `compiled` must not recompute or pack anything.
passes::Prices rough_prices(const Compiled& compiled, const RoughRates& rates = {});

}  // namespace quintet::compiler
