// Factors the rank order so that every rank group a recipe needs is a product of factors.
//
// Ranks are ordered [pp, dp_replicate, dp_shard, cp, tp], tp innermost, or, for experts, [pp, expert copies,
// ep, etp], etp innermost. A cut of size n separates blocks of n consecutive ranks. All groups have a common
// refinement exactly when each size, in sorted order, divides the next.
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

// Sorted and unique, without size 1; the last is the world size. Sizes are
//   tp / gcd(tp, kv_heads)            tensor ranks that hold the same KV heads
//   tp                                tensor ranks
//   tp u_rest, tp u                   Ulysses ranks that hold the same KV heads, and all of them: u is
//                                     ulysses_ranks(), u_rest = u / ulysses_kv_ranks()
//   tp cp                             context ranks
//   tp k                              reshard_after_forward = k
//   tp cp dp_shard, x dp_replicate, x pp
//   etp, etp ep                       expert ranks
// kv_heads is the model's demand on that dim. Requires every axis to be at least 1.
std::vector<Cut> mesh_cuts(const Parallel& parallel, const base::DimDemands& demands);

// The first cut whose size does not divide the next one; cuts.size() when all do.
size_t first_bad_cut(const std::vector<Cut>& cuts);

}  // namespace quintet::config
