// How much state a checkpoint has, and how much of it a rank holds: what copies of it in host memory take.
#pragma once

#include <vector>

#include "graph/step_graph.h"
#include "layout/saved_share.h"
#include "program/program.h"

namespace quintet::program {

// All tensors of a checkpoint.
int64_t checkpoint_bytes(const std::vector<graph::StateDecl>& states);
// The states that a rank has in its memory, replicated ones included, with the padding between parameters.
int64_t saved_bytes(const Program& program);

// What the ranks of one pipeline place save; `groups` are theirs, and `program` is that of any of them.
struct SavedByClass {
  layout::SavedShare::Bytes most;  // of the rank that saves most
  int64_t frozen_files = 0;        // ranks that save tensors that are never updated
};
SavedByClass saved_by_class(const Program& program, const std::vector<layout::Group>& groups,
                            const std::vector<graph::StateDecl>& states, const layout::Layout& layout,
                            int pipeline_place);

// Host memory of a rank in addition to its arena, with these recipe keys.
struct SavingMemory {
  int64_t staging = 0;  // checkpoint.every: the copy that is written
  int64_t peers = 0;    // checkpoint.peer_every: two copies of its state and two of another rank's
  int64_t total() const { return staging + peers; }
};
struct SavingKeys {
  bool staged = false, peers = false, on_gpu = false;
};
SavingMemory saving_memory(const Program& program, const SavedByClass& saved, const SavingKeys& keys);

}  // namespace quintet::program
