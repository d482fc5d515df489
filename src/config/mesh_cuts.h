// Factors the rank order so that every rank group a recipe needs is a product of factors.
//
// The ranks of a stage are ordered as parallel.order says, by default [dp_replicate, dp_shard, cp, tp], tp
// innermost; for experts [copies, ep, etp] (axis_order.h). A cut of size n separates blocks of n consecutive
// ranks. All groups have a common refinement exactly when each size, in sorted order, divides the next.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"

namespace quintet::config {

struct Cut {
  int64_t size;
  std::string why;  // with its numbers: "tp 4 x cp 2"
  std::string key;  // the recipe key that requires it first
};

// Sorted and unique, without size 1; the last is the ranks of a stage. With every axis beginning at the
// product of those inside it, sizes are where
//   tp, cp, dp_shard and dp_replicate end
//   tp / gcd(tp, kv_heads)            tensor ranks end that hold the same KV heads
//   u_rest, u of cp                   Ulysses ranks end that hold the same KV heads, and all of them: u is
//                                     ulysses_ranks(), u_rest = u / ulysses_kv_ranks(), of either method
//   k of cp x dp_shard                reshard_after_forward = k ends
//   etp, ep and copies of experts     end
// kv_heads is the model's demand on that dim. Requires every axis to be at least 1.
std::vector<Cut> mesh_cuts(const Parallel& parallel, const base::DimDemands& demands);

// The first cut whose size does not divide the next one; cuts.size() when all do.
size_t first_bad_cut(const std::vector<Cut>& cuts);

}  // namespace quintet::config
