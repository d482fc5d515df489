// The state table: what a rank stores between steps for the parameters of a group, derived from the step
// graph (graph::StateDecl). The lowering makes one buffer per row; the planner, the search and the advice
// sum the same rows with local_bytes(). An optimizer that declares other states changes none of them.
#pragma once

#include "graph/step_graph.h"
#include "layout/groups.h"

namespace quintet::layout {

// One state of all parameters of a group.
struct StateRow {
  graph::Role role = graph::Role::Weight;
  graph::Keep keep = graph::Keep::Saved;
  std::string slot;                        // graph::StateDecl::slot
  graph::DType dtype = graph::DType::F32;  // as elements are read and written
  graph::Encoding encoding = graph::Encoding::Plain;
  graph::DType stored = graph::DType::F32;  // of the bytes that are stored
  int64_t block = 1;                        // elements for each that is stored
  friend bool operator==(const StateRow&, const StateRow&) = default;
};
using StateRows = std::vector<StateRow>;  // ordered by role, then as declared

// The rows of every group. Parameters of a group have the same states; anything else is an InternalError.
std::vector<StateRows> state_table(const std::vector<graph::StateDecl>& states,
                                   const std::vector<Group>& groups);
// The rows of a single parameter's states, as if it formed a group alone.
StateRows rows_of(const std::vector<graph::StateDecl>& states, std::string_view param);

// How a group is stored between uses: whole, or in equal ranges over `shards` ranks.
struct GroupStorage {
  int64_t elements = 0;  // on a rank before ZeRO, padding included (padded_count)
  int64_t shards = 1;
  int zero = 0;
  int64_t outer = 1;  // ranks that divide a shard's optimizer state further (DataAtoms::outer)
};
// Whether a state of this role is the optimizer's, which DataAtoms::outer divides too.
bool is_optimizer(graph::Role role);
// Whether ZeRO shards a state of this role. Frozen parameters have only weights.
bool is_divided(graph::Role role, int zero);
// A rank's number of elements of a state.
int64_t local_count(const StateRow& state, const GroupStorage& storage);
int64_t local_bytes(const StateRow& state, const GroupStorage& storage);

}  // namespace quintet::layout
