// Tables of a model's blocks, read off a small model that is compiled with the recipe's layout of values
// (bounds.h says what for).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "sim/durations.h"

namespace quintet::search {

// Seconds on the compute stream from a block's first instruction.
struct Stretch {
  double to_next = 0;  // to the first instruction of the block that follows in the pass
  double own = 0;      // to the end of its last instruction
  // Of that, what runs before anything that needs the block before it in the pass (recomputing), and after
  // everything that the next one needs (gradients of parameters).
  double early = 0, late = 0;
};

struct BlockTable {
  Stretch forward, backward;  // backward: gradients of activations and of parameters
  Stretch backward_b;         // with those of parameters left for later ...
  double backward_w = 0;      // ... which take this
  int64_t kept_bytes = 0;     // from forward to backward, of one micro-batch
  int64_t kept_for_w = 0;     // of that, what gradients of parameters need
  int64_t left_for_w = 0;     // from B to W where they are split: what B makes and W needs
  // The most that is alive inside it beside that, for one pass only; and without what would be left for W.
  int64_t passing_bytes = 0, passing_split = 0;
  int64_t dense = 0, expert = 0;                // trainable elements on a rank, before ZeRO
  int64_t frozen_dense = 0, frozen_expert = 0;  // frozen ones
};

struct BlockTables {
  std::vector<BlockTable> of_kind;
  std::vector<int> kind;      // by block label of the recipe's model: its row above
  int64_t scratch_bytes = 0;  // without a pipeline: alive at the fullest moment beside state and what is kept
  const BlockTable& block(size_t label) const { return of_kind[static_cast<size_t>(kind[label])]; }
};

// What the tables depend on, as text: recipes with the same have the same tables.
std::string tables_key(const config::Recipe& recipe);

// The recipe is resolved.
BlockTables make_tables(const config::Recipe& recipe, const sim::Machine& machine);

}  // namespace quintet::search
