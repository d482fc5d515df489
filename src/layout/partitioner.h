// Internal to room layout: the walk over the logical graph that makes the local one. What most ops need is in
// partition.cc; ops with collectives inside have files of their own.
#pragma once

#include <map>
#include <tuple>

#include "layout/partition.h"

namespace quintet::layout {

class Partitioner {
 public:
  Partitioner(const graph::Graph& logical, const Layout& layout);
  LocalGraph run();

 private:
  using Node = graph::Node;
  using ValueId = graph::ValueId;

  // A node with its rule and the atoms that divide each direction of it.
  struct Divided {
    const Node& node;
    std::vector<graph::Type> in, out;
    std::vector<graph::OpDim> rule;
    std::vector<AtomList> atoms;  // by direction
  };
  Divided divide(const Node& node) const;
  Placement placement_of(const Divided& d, size_t operand, bool output) const;

  void partition_node(const Node& node);
  bool add_where_they_lie(const Divided& d);

  // partition_ring.cc: attention whose K and V travel round the ring.
  void partition_ring(const Divided& d);
  void partition_ring_backward(const Divided& d);
  Placement ring_placement(const Divided& d, size_t operand, bool output) const;
  ValueId shift(ValueId value, const Node& like);
  ValueId settled(ValueId value, graph::DType dtype, const Node& like);

  // partition_experts.cc: rows that go to the ranks of their experts and back.
  bool partition_exchange(const Node& node);
  void plan_slots(const Node& route, graph::Attrs& attrs);
  ValueId regroup(ValueId rows, ValueId received, bool inverse, const Node& like);

  // The value as this node needs it.
  ValueId use(ValueId logical, const Placement& wanted, const Node& consumer);
  ValueId load(ValueId input, const Placement& wanted);
  ValueId emit(const Transition& t, ValueId input, ValueId logical, const Node& consumer);
  // Appends a local node that works on the same directions as `d`.
  Node& append(const Divided& d, const graph::OpDef& op, std::vector<ValueId> inputs, graph::Attrs attrs,
               std::vector<graph::Type> types);
  Node& append(const graph::OpDef& op, std::vector<ValueId> inputs, graph::Attrs attrs, const Node& like,
               std::vector<graph::Type> types);
  // The local value is (now) the logical one.
  void settle(ValueId logical, ValueId local, Placement placement);
  graph::Type local_of(const graph::Type& global, const Placement& p) const;

  Placement input_placement(const graph::Type& type) const;
  void add_source(ValueId logical, Placement placement);
  void add_grads(const graph::Param& logical);
  void note(ValueId local, ValueId origin, Placement placement);
  const Placement& placement(ValueId local) const { return out_.placements[local.index()]; }
  ValueId current(ValueId logical) const { return current_[logical.index()]; }

  const graph::Graph& logical_;
  const Layout& layout_;
  LocalGraph out_;
  std::vector<ValueId> current_;  // by logical ValueId: where the value now is
  std::map<std::tuple<ValueId, Placement, bool>, ValueId> copies_;
  int64_t pad_ = 0;          // rows that this rank sends to each expert; 0: as many as choose it
  int64_t slot_rows_ = 0;    // (token, choice) pairs of this rank
  int64_t routed_rows_ = 0;  // bound of the rows that can reach this rank's experts
};

}  // namespace quintet::layout
