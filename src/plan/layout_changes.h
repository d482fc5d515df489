// Single changes to a recipe's layout, of which advice and explanations are made.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace quintet::plan {

struct LayoutChange {
  std::string subject;            // "tp 8": what it is about
  std::string what;               // "tp 4": what it is instead
  std::vector<std::string> sets;  // as after --set, to make it
  config::Recipe recipe;          // with it made, resolved
  // Changes with the same words here are one in several sizes, the mildest first: one of them is enough.
  std::string kind = {};
};

// For every choice that is not the simplest, the next simpler one: an axis halved (dp takes up the devices),
// a lower ZeRO stage, less recompute, no sequence parallel, the plain schedule. Legal ones only.
std::vector<LayoutChange> simpler(const config::Recipe& recipe);

// Changes that may save memory: a higher ZeRO stage, state sharded over more devices, recompute, a smaller
// micro-batch, sequence parallel, an axis doubled (dp gives up the devices; tp stays within `near` devices),
// a schedule that holds less, smaller chunks of the loss, narrower state; experts over more or fewer ranks,
// and a capacity for them instead of room for all that can come; recompute of just as much as `budget` bytes
// for a rank's arena ask for. Legal ones only, of every kind.
std::vector<LayoutChange> savings(const config::Recipe& recipe, int64_t near, int64_t budget);

// Bytes of the fullest device.
inline int64_t needs(const Report& report) { return report.memory.ranks[report.memory.most_loaded].total(); }
// "97.3 GiB"
std::string gib(int64_t bytes);

// The plans of recipes, `threads` at a time; nothing where a recipe cannot be compiled.
std::vector<std::optional<Report>> plan_all(const std::vector<config::Recipe>& recipes,
                                            const Assumptions& assumptions, int threads);

}  // namespace quintet::plan
