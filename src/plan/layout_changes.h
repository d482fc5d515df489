// Single changes to a recipe's layout, the building blocks of advice and explanations.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace quintet::plan {

struct LayoutChange {
  std::string subject;            // the current choice: "tp 8"
  std::string what;               // its replacement: "tp 4"
  std::vector<std::string> sets;  // --set arguments that make the change
  config::Recipe recipe;          // with the change applied, resolved
  // Changes of the same kind differ only in degree, mildest first; advice reports the first that suffices.
  std::string kind = {};
};

// For every choice that is not the simplest, the next simpler one: an axis halved (dp absorbs the devices),
// a lower ZeRO stage, less recompute, no sequence parallelism, the plain schedule. Legal changes only.
std::vector<LayoutChange> simpler(const config::Recipe& recipe);

// Changes that may save memory: a higher ZeRO stage, state sharded over more devices, recompute, a smaller
// micro-batch, sequence parallelism, an axis doubled (dp gives up the devices; tp stays within `near`
// devices), a schedule with fewer activations in flight, smaller loss chunks, narrower state, experts over
// more or fewer ranks, an expert capacity instead of worst-case buffers, and `fit` recompute with `budget`
// bytes for a rank's arena. Every kind that is legal.
std::vector<LayoutChange> savings(const config::Recipe& recipe, int64_t near, int64_t budget);

// Bytes used by the most loaded device.
inline int64_t needs(const Report& report) { return report.memory.ranks[report.memory.most_loaded].total(); }
// Of a plan that does not fit: "a device needs 97.3 GiB, has 79.1 GiB", or the same of a node's host memory.
std::string misfit_text(const Report& report);
// "97.3 GiB"
std::string gib(int64_t bytes);

// Plans the recipes, `threads` at a time; nullopt for a recipe that does not compile.
std::vector<std::optional<Report>> plan_all(const std::vector<config::Recipe>& recipes,
                                            const Assumptions& assumptions, int threads);

}  // namespace quintet::plan
