// The placement of a value over the mesh, and the steps that change it.
#pragma once

#include <string>
#include <vector>

#include "graph/op.h"
#include "layout/mesh.h"

namespace quintet::layout {

// Per dim the atoms that shard it, major to minor; over the remaining atoms the value is replicated, except
// over those in `partial`, where each rank holds a term and the value is the sum (or maximum) of the terms.
//
// A stored value may be split once more: its group's flat buffer (groups.h) into equal ranges over `flat`.
struct Placement {
  std::vector<AtomList> dims;
  AtomList flat = {};
  AtomList partial;  // sorted
  graph::Reduction reduction = graph::Reduction::Sum;
  friend bool operator==(const Placement&, const Placement&) = default;
  friend auto operator<=>(const Placement&, const Placement&) = default;
};

Placement replicated(int num_dims);
std::string to_string(const Placement& p, const graph::Type& type, const Mesh& mesh);

// Size of every rank's shard of a dim: equal on all ranks; when the size is not divisible, the last shards
// hold padding.
int64_t shard_size(int64_t global, int parts);
graph::Type local_type(const graph::Type& global, const Placement& p, const Mesh& mesh);

// One collective or local step of a redistribution.
struct Transition {
  enum class Kind : uint8_t { AllReduce, ReduceScatter, AllGather, AllToAll, Slice, ZeroUnlessFirst };
  Kind kind;
  AtomList atoms;
  int dim = -1;    // ReduceScatter, AllGather, Slice: along this dim; AllToAll: the dim that is gathered
  int split = -1;  // AllToAll: the dim that is split
  graph::Reduction reduction = graph::Reduction::Sum;
  Placement after;
  friend bool operator==(const Transition&, const Transition&) = default;
};

// The steps that turn `from` into `to`: gathers strip the minor end of a dim, an atom that moves from one dim
// to another does so by all-to-all, partial values are reduce-scattered where the target is sharded by those
// atoms and all-reduced otherwise (scatter first: fewer bytes), and the rest is a local slice.
std::vector<Transition> redistribute(const Placement& from, const Placement& to);

}  // namespace quintet::layout
