// memory.recompute = "fit": recompute as little as lets every rank's planned memory fit memory.budget.
//
// Each pipeline rank is fitted alone, for a block's policy changes the memory of its own rank only. Blocks
// have levels of recompute (passes/recompute_levels.h), each step from one to the next with the bytes it
// saves on a rank, times the micro-batches under way, and the time it takes. Times come from the local graph
// and the rough rates below: they decide what is tried first, never whether it fits. Steps are sorted by
// bytes per time (among equals earlier blocks first: the last block's activations are read again at once);
// the shortest beginning of that list that fits is found by bisection; then single blocks recompute less, or
// trade with others, as long as that saves time. Whether a policy fits is what the compiler plans for it, to
// the byte.
//
// The result is a pure function of the recipe, the model and the backend's scratch sizes, equal on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "passes/recompute_levels.h"

namespace quintet::compiler {

struct Compiled;
struct CompileOptions;

// A CPU of today. Only their ratios matter.
struct RoughRates {
  double flops_per_nano = 100;
  double bytes_per_nano = 20;      // to and from memory
  double sent_bytes_per_nano = 5;  // between ranks
};

// A policy: the nodes of the model's graph that are recomputed.
struct Fit {
  passes::Marks marks;
  int64_t budget = 0;                 // what every program must keep to; 0: a trial
  std::vector<int64_t> planned = {};  // arena bytes by pipeline rank, of its largest program
  int64_t nanos = 0;      // extra time by the rough rates, of the slowest pipeline rank's micro-batch
  std::string text = {};  // "12 of 32 blocks recompute norm and activation, +1.8 % FLOPs, planned ..."
};

// UserError with the numbers when the memory does not suffice even when all is recomputed that can be.
Fit fit_recompute(const config::Recipe& recipe, const CompileOptions& options);

// What the ops and values of the model amount to on a rank. `compiled` recomputes and packs nothing.
passes::Prices rough_prices(const Compiled& compiled, const RoughRates& rates = {});

}  // namespace quintet::compiler
