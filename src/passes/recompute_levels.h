// Which ops of a block to recompute, for less and less memory: the sets that no mixture of others beats.
//
// A set of recomputed ops keeps fewer bytes from the forward to the backward pass and takes more time. Of all
// sets of a block's ops those are listed for which bytes + x * time is least for some x: the corners of the
// lower convex hull. Each is a minimum cut (keep a value, or compute it again from values that are kept or
// computed again), so they are found without trying all sets, and each holds the one before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "passes/recompute.h"

namespace quintet::passes {

// What ops and values amount to on a rank.
struct Prices {
  std::vector<int64_t> bytes;  // by value: to keep it
  std::vector<int64_t> nanos;  // by node: to compute it once more
};

struct Level {
  std::vector<size_t> nodes;  // recomputed, ascending
  int64_t kept_bytes = 0;     // of the block's values, from forward to backward
  int64_t nanos = 0;          // more than without recompute
};

// The first recomputes nothing, the last keeps as little as can be. From one to the next bytes fall, time
// grows, and bytes saved per time fall.
std::vector<Level> recompute_levels(const graph::Graph& graph, int block, const Prices& prices);

}  // namespace quintet::passes
