// Sharding rules: how a node of the logical graph becomes nodes of the local graph. Most ops need none:
// by_dims() needs only the named dims along which the work may be sharded (OpDef::dims). An op whose sharding
// takes collectives of its own, or changes its attributes, has a rule in layout/rules/<family>.cc.
#pragma once

#include <map>
#include <optional>
#include <tuple>

#include "layout/partition.h"
#include "layout/tensor_split.h"

namespace quintet::layout {

enum class Side : uint8_t { Input, Output };

// A node with its directions (OpDef::dims) and the atoms that shard each of them.
struct Divided {
  const graph::Node& node;
  std::vector<graph::Type> in, out;  // logical types of its operands
  std::vector<graph::OpDim> directions;
  std::vector<AtomList> atoms;  // by direction
};

// The state that a rule works on: the logical graph, where its values now are, and the local graph under
// construction. A rule uses every input it reads, emits nodes, and settles every output of the node.
class RuleContext {
 public:
  using Node = graph::Node;
  using ValueId = graph::ValueId;

  const Layout& layout() const { return layout_; }
  const graph::Graph& logical() const { return logical_; }
  const graph::Graph& local() const { return out_.graph; }
  int parts(const AtomList& atoms) const { return layout_.mesh.size(atoms); }

  // How an attention op gets whole sequences.
  const Context& context_of(const Node& node) const;
  // The directions of a node under this layout. UserError when a size is not divisible by the atoms.
  Divided divide(const Node& node) const;
  // The placement that an operand must have, or a result will have, by the node's directions.
  Placement placement_of(const Divided& d, size_t operand, Side side) const;
  // A rank's part of a logical type.
  graph::Type local_of(const graph::Type& global, const Placement& at) const;

  // The local value that currently holds a logical value, and the placement of a local value.
  ValueId current(ValueId logical) const { return current_[logical.index()]; }
  const Placement& placement(ValueId local) const { return out_.placements[local.index()]; }
  // The logical value that a local value is (a piece of).
  ValueId origin(ValueId local) const { return out_.origin[local.index()]; }

  // The value with the placement that `consumer` needs; emits the transition if it has another.
  ValueId use(ValueId logical, const Placement& wanted, const Node& consumer);
  // Emits a local node with the phase, block and row group of `like`. The sharded form also records which
  // part of each direction this rank holds, for kernels that must know.
  Node& emit(const graph::OpDef& op, std::vector<ValueId> inputs, graph::Attrs attrs, const Node& like,
             std::vector<graph::Type> types);
  Node& emit(const Divided& d, const graph::OpDef& op, std::vector<ValueId> inputs, graph::Attrs attrs,
             std::vector<graph::Type> types);
  // Emits the node itself, sharded by its directions, with these attributes, and settles its outputs.
  void emit_by_dims(const Divided& d, graph::Attrs attrs);
  // Records the placement of an intermediate local value that represents a logical one.
  void note(ValueId local, ValueId origin, Placement placement);
  // From now on the local value holds the logical one.
  void settle(ValueId logical, ValueId local, Placement placement);

  // Set LocalGraph::once and LocalGraph::divisions of the last emitted node.
  void set_once(std::vector<AtomList> once);
  void set_divisions(std::vector<Division> divisions);

  // Upper bound of a rank's rows along a dim whose size is known only within the step (graph::is_ragged).
  void set_bound(graph::Dim dim, int64_t rows) { bounds_[dim] = rows; }
  int64_t bound(graph::Dim dim) const { return bounds_.at(dim); }

 protected:
  RuleContext(const graph::Graph& logical, const Layout& layout);

  const graph::Graph& logical_;
  const Layout& layout_;
  const std::map<ValueId, TensorSplit> splits_;
  LocalGraph out_;

 private:
  std::optional<int> split_of(const Divided& d) const;
  ValueId load(ValueId input, const Placement& wanted);
  ValueId transition(const Transition& t, ValueId input, ValueId logical, const Node& consumer);

  std::vector<ValueId> current_;  // by logical ValueId
  std::map<std::tuple<ValueId, Placement, bool>, ValueId> copies_;
  std::map<graph::Dim, int64_t> bounds_;
};

// The rule of every op without one of its own: shards the node by its directions. Ops that pass partial terms
// (OpDef::passes_partial) leave the sum open where their operands are placed alike.
void by_dims(RuleContext& context, const graph::Node& node);

// The ops with rules of their own (layout/rules/table.cc).
const std::vector<OpRule>& built_in_rules();

}  // namespace quintet::layout
