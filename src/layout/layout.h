// A layout: which mesh atoms divide which named dim, and over which atoms parameters, gradients and optimizer
// state are stored in shards. It is all that the recipe's [parallel] section means.
#pragma once

#include <array>

#include "config/recipe.h"
#include "layout/placement.h"

namespace quintet::layout {

struct Layout {
  Mesh mesh;
  std::array<AtomList, graph::kNumDims> dims;  // by graph::Dim
  // Sequence parallel: token rows are divided by these atoms too, wherever no other dim of an op uses them.
  AtomList sequence;
  AtomList pipeline;   // pp: stages of the graph, not a placement
  AtomList replicate;  // dp_replicate
  AtomList shard;      // dp_shard, where zero >= 1 stores in shards; empty for zero 0
  AtomList reshard;  // the inner part of `shard` that keeps a copy between forward and backward; empty: none
  int zero = 0;
  bool keep_gathered = false;  // zero 3 with reshard_after_forward = false
  int prefetch = 1;

  const AtomList& atoms(graph::Dim d) const { return dims[static_cast<size_t>(d)]; }
  const AtomList& data() const { return atoms(graph::Dim::Tokens); }  // the atoms that hold different samples
};

Layout make_layout(const config::Parallel& parallel, int64_t kv_heads);

// Where a parameter lies for computing: each of its dims as the layout divides it, the first dim to claim an
// atom having it. (Storage in ZeRO shards is a matter of groups, see groups.h.)
Placement param_placement(const Layout& layout, const graph::Type& type);

}  // namespace quintet::layout
