// A layout: which mesh atoms shard which named dim, and over which atoms parameters, gradients and optimizer
// state are stored in shards. It is the complete meaning of the recipe's [parallel] section.
#pragma once

#include <map>

#include "config/recipe.h"
#include "layout/placement.h"

namespace quintet::layout {

// Context parallelism: token rows are sharded by the context atoms too, in zig-zag order (base/row_order.h).
// The dim "context", query rows of attention, is sharded by `rows` of the op's method. Only attention needs
// whole sequences; these fields say how it gets them.
struct Context {
  AtomList atoms;  // cp, major to minor: those of `rows`, then those of `heads`
  AtomList rows;   // query rows stay sharded by these: K and V are gathered, or sent around the ring
  AtomList heads;  // rows are exchanged for heads over these (Ulysses), first those that shard KV heads too
  AtomList kv_heads;
  bool ring = false;
  int ranks = 1;  // cp
};

// Placement of experts: ep x etp ranks out of data x context x tensor ranks share the experts; over the
// rest, edp, they are replicated, and their gradients are summed.
struct ExpertMesh {
  AtomList ep, etp, edp;
  AtomList group() const { return concat(ep, etp); }  // the ranks that exchange tokens
};

// How tp divides the weights of some names, instead of by their dims.
enum class TensorSplit : uint8_t { Column, Row, Replicate };  // by outputs, by inputs, not at all
struct TensorOverride {
  std::string key, match;  // the recipe's key, and one of its patterns
  TensorSplit split = TensorSplit::Replicate;
};

// Over which atoms a parameter's gradient is a sum over samples, and over which of these it is stored in
// shards.
struct DataAtoms {
  AtomList all;
  AtomList shard;     // zero >= 1; empty for zero 0
  AtomList outer;     // replicas that divide the optimizer state of a shard further; empty: none do
  AtomList reshard;   // the inner part of `shard` that keeps a copy between forward and backward; empty: none
  bool keep = false;  // zero 3: gathered parameters are kept from forward to backward

  AtomList state() const { return concat(shard, outer); }  // a range of the optimizer state each, in order
};

struct Layout {
  Mesh mesh;
  std::map<graph::Dim, AtomList> dims;  // absent dims are not sharded
  AtomList samples;                     // ranks that hold different sequences: dp
  AtomList tensor;                      // tp
  // Sequence parallel: token rows are sharded by these atoms too, wherever no other dim of an op uses them.
  AtomList sequence;
  AtomList pipeline;                  // pp: stages of the graph, not a placement
  AtomList replicate;                 // dp_replicate
  Context context, windowed_context;  // of attention, and of attention with a sliding window
  ExpertMesh experts;
  DataAtoms dense, expert;  // of ordinary parameters, and of expert weights
  int zero = 0;
  int prefetch = 1;
  config::Grouping grouping;
  std::vector<std::string> group_match, keep_match, persist_match;  // patterns over names of parameters
  std::vector<TensorOverride> tensor_overrides;                     // the first that matches counts
  int64_t gathered_limit = 0, persist_below = 0;                    // zero 3: bytes, 0 = none
  int gradient_blocks = 1;  // zero 2 and 3: blocks whose whole gradients may exist at once

  const AtomList& atoms(graph::Dim d) const {
    static const AtomList none;
    const auto it = dims.find(d);
    return it == dims.end() ? none : it->second;
  }
  const AtomList& data() const { return atoms(graph::Dim::Tokens); }  // the atoms that hold different tokens
  AtomList everything() const;                                        // all atoms of more than one rank
};

// What a graph requires of a layout: its dims that ranks may shard, ordered by dim and size, each once.
base::DimDemands demands_of(const graph::Graph& graph);

// Only the dims of a model matter. The second form is for the built-in families, before there is a
// graph.
Layout make_layout(const config::Parallel& parallel, const base::DimDemands& demands);
Layout make_layout(const config::Parallel& parallel, const config::Model& model);

// The placement of a parameter for computing: each of its dims as the layout shards it; an atom goes to the
// first dim that claims it. (Storage in ZeRO shards is decided by groups, see groups.h.)
Placement param_placement(const Layout& layout, const graph::Type& type);
bool is_expert_param(const graph::Type& type);
// Its placement between steps, and that of its reduced gradient and its optimizer state.
Placement storage_of(const Layout& layout, const graph::Type& type);

}  // namespace quintet::layout
