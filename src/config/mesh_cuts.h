// Where the row of ranks must be cut. Ranks are numbered with tp innermost, then cp, dp_shard, dp_replicate,
// pp; an axis, or the part of an axis that some dim uses (KV heads fewer than tp, Ulysses inside cp, experts
// folded out of several axes), is a stretch of that numbering. All stretches can be named at once when the
// sizes at which they begin and end divide one another.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/recipe.h"

namespace quintet::config {

struct Cut {
  int64_t size;     // ranks below the cut, counted from the innermost
  std::string why;  // "tp", "ep x etp": what ends there
};

// Ascending, without duplicates. The layout is possible when each size divides the next.
std::vector<Cut> mesh_cuts(const Parallel& parallel, const Model& model);

// Ranks of cp that exchange rows for heads, and how many of those can have KV heads of their own (the others
// share them). 1 without Ulysses.
int64_t ulysses_ranks(const Parallel& parallel);
int64_t ulysses_kv_ranks(const Parallel& parallel, const Model& model);

// Heads of K and V as attention sees them.
int64_t attention_kv_heads(const Model& model);

}  // namespace quintet::config
