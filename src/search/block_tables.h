// Per-block cost tables of a model, read from a small model that is compiled with the recipe's layout of
// values. They feed the bounds in bounds.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "layout/state_table.h"
#include "sim/durations.h"

namespace quintet::search {

// Seconds on the compute stream from a block's first instruction.
struct Stretch {
  double to_next = 0;  // to the first instruction of the next block in the pass
  double own = 0;      // to the end of its last instruction
  // Part of `own`: compute that runs before anything that depends on the previous block of the pass
  // (recompute), and after everything that the next block depends on (parameter gradients).
  double early = 0, late = 0;
};

// A parameter group of a block (layout/groups.h) on a rank, before ZeRO.
struct GroupTable {
  bool expert = false, trainable = true;
  int64_t elements = 0;  // of its parameters
  int64_t used = 0;      // with the gaps between them, without the padding that depends on the shards
  layout::StateRows states;
};

struct BlockTable {
  Stretch forward, backward;  // backward: activation and parameter gradients
  Stretch backward_b;         // with parameter gradients deferred to W ...
  double backward_w = 0;      // ... which takes this long
  int64_t kept_bytes = 0;     // kept from forward to backward, per micro-batch
  int64_t kept_for_w = 0;     // part of kept_bytes that parameter gradients need
  int64_t left_for_w = 0;     // split backward: produced by B and read by W
  // Peak of the bytes that live within a single pass, in addition to the kept ones; and the same without what
  // a split backward pass keeps for W.
  int64_t passing_bytes = 0, passing_split = 0;
  std::vector<GroupTable> groups;
};

struct BlockTables {
  std::vector<BlockTable> of_kind;
  std::vector<int> kind;      // by block label of the recipe's model: index in of_kind
  int64_t scratch_bytes = 0;  // without a pipeline: live at the peak in addition to state and kept bytes
  const BlockTable& block(size_t label) const { return of_kind[static_cast<size_t>(kind[label])]; }
};

// Everything the tables depend on, as text: recipes with equal keys have equal tables.
std::string tables_key(const config::Recipe& recipe);
// The part of it about memory.
std::string recompute_key(const config::Memory& memory);

// `recipe` must be resolved.
BlockTables make_tables(const config::Recipe& recipe, const sim::Machine& machine);

}  // namespace quintet::search
