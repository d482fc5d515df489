// Which ops of a block to recompute, for less and less memory: the Pareto-optimal sets on the convex hull.
//
// A set of recomputed ops keeps fewer bytes from the forward to the backward pass and takes more time. Of all
// sets of a block's ops, those are listed that minimise bytes + x * time for some x: the corners of the lower
// convex hull. Each is a minimum cut (keep a value, or recompute it from values that are kept or recomputed),
// so they are found without enumerating all sets, and each contains the one before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "passes/recompute.h"

namespace quintet::passes {

// The cost of ops and values on a rank.
struct Prices {
  std::vector<int64_t> bytes;  // by value: to keep it
  std::vector<int64_t> nanos;  // by node: to recompute it
};

struct Level {
  std::vector<size_t> nodes;  // recomputed, ascending
  int64_t kept_bytes = 0;     // of the block's values, from forward to backward
  int64_t nanos = 0;          // additional time
};

// The first recomputes nothing, the last keeps as little as possible. From one to the next bytes fall, time
// grows, and bytes saved per time fall.
std::vector<Level> recompute_levels(const graph::Graph& graph, int block, const Prices& prices);

}  // namespace quintet::passes
