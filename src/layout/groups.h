// Parameter groups: the parameters of one or more blocks as one flat buffer, so that one collective gathers
// or reduces them all without copies. Local elements (after tensor parallelism) are stored parameter after
// parameter; ZeRO splits the flat buffer into equal ranges over the shard atoms, with padding at the end.
#pragma once

#include <string>
#include <vector>

#include "graph/step_graph.h"
#include "layout/partition.h"
#include "layout/stages.h"

namespace quintet::layout {

struct Segment {
  graph::ValueId param;  // in the local graph that the groups were made from
  std::string name;
  graph::Type global, local;  // shapes of the whole parameter and of this rank's part of it
  Placement placement;        // for computing
  int64_t offset = 0;         // first element in the group's flat buffer
  int64_t count = 0;          // local elements, padding of the vocabulary included
  bool decay = true;
  AtomList extra_partial;  // atoms outside the group's data atoms over which the gradient is still a sum
  AtomList replicated;     // atoms outside the group's data atoms over which the parameter is replicated
  graph::Init init = graph::Init::Normal;
  double stddev = 0;
};

struct Group {
  // "block3", "block3.experts", "block3.frozen", or "block3.lion" and "block3.adamw"; "blocks3-6" of several
  // blocks, "block3.part1" of a block that is split; ".match0", ".kept" or ".whole" after patterns.
  std::string name;
  int block = 0, last_block = 0;
  bool trainable = true;
  int zero = 0;    // Layout::zero, or 2 where a group stays whole under zero 3 (Layout::persist_*)
  DataAtoms data;  // where gradients are summed and state is stored in shards
  std::vector<Segment> segments;  // those with extra_partial first, so that they are one range
  int64_t count = 0;              // flat elements with padding: a multiple of the number of shards
  int64_t used = 0;               // flat elements in segments or between them

  // A parameter that several pipeline ranks use (tied embedding and head): these ranks hold copies of the
  // group, which contains nothing else, sum their gradients and apply the same update. Empty: one pipeline
  // rank holds it.
  std::vector<int> shared_by;  // pipeline ranks

  int64_t shard_count(int shards) const { return count / shards; }
  // The atoms over which this rank's range of a state is cut: of the optimizer for trained parameters.
  AtomList divided_by() const;
  // The ranks that hold the same elements of a segment's state as this one.
  AtomList replicas(const Segment& segment) const;
  int64_t parameter_bytes() const;  // on a rank, before ZeRO
};

// Alignment of a segment's first element, in elements: 16 bytes in bf16.
inline constexpr int64_t kSegmentAlign = 8;
// Elements of a group that is split into `shards` equal ranges, of which `used` belong to segments or to gaps
// between them. A group that is not split needs no padding at its end, unless its states have blocks of
// several elements.
int64_t padded_count(int64_t used, int64_t shards, int64_t block = 1);

// The groups that pipeline rank `stage_rank` holds, as Layout::grouping joins or splits blocks; the first and
// the last block (embedding and head) and virtual stages are never joined with others. Parameters of
// different storage classes are never in one group: its states are those of every parameter in it. Where
// states have blocks, parameters and shards begin at multiples of them; UserError where a rank's part of a
// parameter begins or ends inside a block, so that blocks are the same in every layout.
std::vector<Group> make_groups(const graph::Graph& logical, const LocalGraph& local, const Layout& layout,
                               const Stages& stages, int stage_rank,
                               const graph::StorageClasses& classes = {},
                               const graph::StateBlocks& blocks = {});

// UserError for a pattern of the recipe that matches no parameter.
void require_matches(const graph::Graph& logical, const config::Parallel& parallel);

// Maps element `i` of a rank's local part of a parameter to its index in the whole parameter; -1 for padding.
class GlobalIndex {
 public:
  GlobalIndex(const Segment& segment, const Mesh& mesh, RankId rank);
  int64_t operator()(int64_t local) const;

  // By dim: sizes of the local part and of the whole, and where in it the part begins.
  const std::vector<int64_t>& local_sizes() const { return local_sizes_; }
  const std::vector<int64_t>& global_sizes() const { return global_sizes_; }
  const std::vector<int64_t>& begins() const { return begins_; }

 private:
  std::vector<int64_t> local_sizes_, global_sizes_, begins_;
};

}  // namespace quintet::layout
