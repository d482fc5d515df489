#include "layout/tensor_split.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/glob.h"
#include "graph/op.h"

namespace quintet::layout {

using graph::Node;
using graph::ValueId;

namespace {

// The linear layer that reads a weight; null: none does, or something else does too.
const Node* reader_of(const graph::Graph& g, ValueId weight) {
  const Node* reader = nullptr;
  for (const Node& n : g.nodes()) {
    const bool reads = std::find(n.inputs.begin(), n.inputs.end(), weight) != n.inputs.end();
    if (!reads) continue;
    if (n.row_group >= 0 || (n.op != &graph::kLinear && n.op != &graph::kLinearDx)) return nullptr;
    if (n.op == &graph::kLinear && n.phase == graph::Phase::F) reader = &n;
  }
  return reader;
}

}  // namespace

int produced_dims(const graph::Graph& g, ValueId weight) {
  const Node* reader = reader_of(g, weight);
  QUINTET_CHECK(reader != nullptr, "{} is not the weight of a linear layer", g.value(weight).name);
  return g.type(reader->outputs[0]).num_dims() - 1;
}

std::map<ValueId, TensorSplit> tensor_splits(const graph::Graph& g, const Layout& layout) {
  std::map<ValueId, TensorSplit> splits;
  if (layout.tensor_overrides.empty()) return splits;
  const int ranks = layout.mesh.size(layout.tensor);
  std::set<std::string> idle, used;  // patterns that match other parameters, or weights
  bool trains = false;
  for (const graph::Param& p : g.params()) {
    const std::string& name = g.value(p.value).name;
    trains |= !p.grads.empty();
    for (const TensorOverride& o : layout.tensor_overrides) {
      if (!base::glob_match(o.match, name)) continue;
      if (reader_of(g, p.value) == nullptr) {
        // A wide pattern may match norms and biases too, which follow the values that they belong to.
        idle.insert(o.match);
        break;
      }
      const graph::Type& type = g.type(p.value);
      const size_t at = o.split == TensorSplit::Row ? static_cast<size_t>(produced_dims(g, p.value)) : 0;
      if (o.split != TensorSplit::Replicate && type.dims[at].name != graph::Dim::KvHeads &&
          type.dims[at].size % ranks != 0)
        base::fail_user("{}: {} of {} = {} cannot be divided over {} tensor ranks; use parallel.tp_replicate",
                        o.key, to_string(type.dims[at].name), name, type.dims[at].size, ranks);
      splits[p.value] = o.split;
      used.insert(o.match);
      for (const ValueId grad : p.grads) splits[grad] = o.split;
      break;
    }
  }
  for (const TensorOverride& o : layout.tensor_overrides)
    if (trains && idle.contains(o.match) && !used.contains(o.match))
      base::fail_user(
          "{}: \"{}\" matches no weight of a linear layer inside a block, and other weights "
          "are divided as their dims say",
          o.key, o.match);
  return splits;
}

AtomList split_atoms(const Layout& layout, graph::Dim key, bool divided) {
  const AtomList rest = without(layout.atoms(key), layout.tensor);
  if (!divided) return rest;
  return concat(rest, key == graph::Dim::KvHeads ? layout.atoms(key) : layout.tensor);
}

ValueId weight_of_linear(const Node& node) {
  if (node.op == &graph::kLinear || node.op == &graph::kLinearDx) return node.inputs[1];
  return node.op == &graph::kLinearDw ? node.outputs[0] : ValueId();
}

int split_direction(const Node& node, const std::vector<graph::Type>& in, const std::vector<graph::Type>& out,
                    TensorSplit split) {
  if (split == TensorSplit::Replicate) return -1;
  const bool column = split == TensorSplit::Column;
  if (node.op == &graph::kLinear) return column ? 0 : out[0].num_dims() - 1;    // outputs, then inputs
  if (node.op == &graph::kLinearDx) return column ? out[0].num_dims() - 1 : 0;  // inputs, then outputs
  return column ? 0 : in[0].num_dims() - 1;                                     // linear_dw: as linear
}

}  // namespace quintet::layout
