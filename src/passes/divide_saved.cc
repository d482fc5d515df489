#include "passes/divide_saved.h"

#include <algorithm>
#include <map>

#include "graph/op.h"
#include "passes/rewrite.h"

namespace quintet::passes {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;

namespace {

class DivideSaved {
 public:
  DivideSaved(layout::LocalGraph local, const layout::Layout& layout)
      : local_(std::move(local)), layout_(layout), ranks_(layout.mesh.size(layout.tensor)) {}

  layout::LocalGraph run() {
    find_saved();
    Graph& g = local_.graph;
    const size_t count = g.nodes().size();
    for (size_t i = 0; i < count; ++i) {
      const Node node = g.nodes()[i];  // adding nodes moves the list
      std::vector<ValueId> inputs = node.inputs;
      if (node.phase != Phase::F)
        for (ValueId& in : inputs)
          if (const auto saved = saved_.find(in); saved != saved_.end()) in = whole(saved->second, in, node);
      order_.push_back(i);
      g.nodes()[i].inputs = std::move(inputs);
      for (const ValueId out : node.outputs)
        if (const auto saved = saved_.find(out); saved != saved_.end()) keep_part(saved->second, out, node);
    }
    return finish();
  }

 private:
  struct Saved {
    bool read_by_b = false;
    ValueId part, again;  // the rank's rows; all rows in the backward pass
  };

  // Floating-point values of activations; index lists stay.
  static bool is_number(graph::DType t) {
    return t == graph::DType::F64 || t == graph::DType::F32 || t == graph::DType::BF16 ||
           t == graph::DType::F16;
  }

  bool is_whole(ValueId id) const {
    const layout::Placement& p = local_.placements[id.index()];
    const graph::Type& type = local_.graph.type(id);
    if (!p.partial.empty() || type.num_dims() < 2 || type.dims[0].name != graph::Dim::Tokens) return false;
    if (!is_number(type.dtype) || type.dims[0].size % ranks_ != 0) return false;
    return std::all_of(p.dims.begin(), p.dims.end(), [&](const layout::AtomList& atoms) {
      return layout::intersection(atoms, layout_.tensor).empty();
    });
  }

  void find_saved() {
    const Graph& g = local_.graph;
    std::map<ValueId, Saved> found;
    std::vector<char> other(g.values().size(), 0);  // has a reader that needs it as it is
    for (const Node& n : g.nodes())
      for (const ValueId in : n.inputs) {
        if (n.phase == Phase::F) continue;
        if (n.row_group >= 0 || n.repeat >= 0) other[in.index()] = 1;
        found[in].read_by_b |= n.phase == Phase::B;
      }
    for (const auto& [id, saved] : found) {
      const NodeId producer = g.value(id).producer;
      if (!producer.valid() || other[id.index()] || !is_whole(id)) continue;
      const Node& made = g.nodes()[producer.index()];
      if (made.phase == Phase::F && made.row_group < 0 && made.repeat < 0) saved_[id] = saved;
    }
  }

  ValueId add(const graph::OpDef& op, ValueId in, graph::Attrs attrs, const Node& like, Phase phase,
              graph::Type type, const layout::Placement& placement) {
    Graph& g = local_.graph;
    order_.push_back(g.nodes().size());
    const ValueId out =
        g.add_node_typed(op, {in}, std::move(attrs), phase, like.block, {std::move(type)}).outputs[0];
    local_.placements.resize(g.values().size());
    local_.origin.resize(g.values().size());
    local_.placements[out.index()] = placement;
    local_.origin[out.index()] = local_.origin[in.index()];
    return out;
  }

  static graph::Attrs along_rows(const layout::AtomList& atoms) {
    return {{"atoms", std::vector<int64_t>(atoms.begin(), atoms.end())}, {"dim", int64_t{0}}};
  }

  void keep_part(Saved& saved, ValueId id, const Node& producer) {
    graph::Type type = local_.graph.type(id);
    type.dims[0].size /= ranks_;
    layout::Placement placement = local_.placements[id.index()];
    placement.dims[0] = layout::concat(placement.dims[0], layout_.tensor);
    const ValueId view =
        add(graph::kSlice, id, along_rows(layout_.tensor), producer, Phase::F, type, placement);
    // A slice is a view of all rows, which would live as long as it does.
    saved.part = add(graph::kScale, view, {{"factor", 1.0}}, producer, Phase::F, type, placement);
  }

  ValueId whole(Saved& saved, ValueId id, const Node& reader) {
    if (!saved.again.valid())
      saved.again = add(graph::kAllGather, saved.part, along_rows(layout_.tensor), reader,
                        saved.read_by_b ? Phase::B : Phase::W, local_.graph.type(id),
                        layout::Placement(local_.placements[id.index()]));
    return saved.again;
  }

  layout::LocalGraph finish() {
    local_.divisions.resize(local_.graph.nodes().size());
    local_.once.resize(local_.graph.nodes().size());
    reorder(local_, order_);
    return std::move(local_);
  }

  layout::LocalGraph local_;
  const layout::Layout& layout_;
  const int ranks_;
  std::map<ValueId, Saved> saved_;
  std::vector<size_t> order_;  // of nodes, added ones in their places
};

}  // namespace

layout::LocalGraph divide_saved(layout::LocalGraph local, const layout::Layout& layout) {
  return DivideSaved(std::move(local), layout).run();
}

}  // namespace quintet::passes
