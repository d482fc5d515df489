#include "layout/partition.h"

#include <map>

#include "base/error.h"

namespace quintet::layout {

using graph::Dim;
using graph::Node;
using graph::NodeId;
using graph::OpDim;
using graph::Phase;
using graph::ValueId;

namespace {

std::vector<int64_t> as_attr(const AtomList& atoms) { return {atoms.begin(), atoms.end()}; }
std::string as_attr(graph::Reduction r) { return r == graph::Reduction::Sum ? "sum" : "max"; }

class Partitioner {
 public:
  Partitioner(const graph::Graph& logical, const Layout& layout) : logical_(logical), layout_(layout) {
    current_.resize(logical.values().size());
  }

  LocalGraph run() {
    for (size_t i = 0; i < logical_.values().size(); ++i) {
      const graph::Value& v = logical_.values()[i];
      const ValueId id(static_cast<int32_t>(i));
      if (v.kind == graph::ValueKind::Input) add_source(id, input_placement(v.type));
      if (v.kind == graph::ValueKind::Param) add_source(id, param_placement(layout_, v.type));
    }
    for (const Node& node : logical_.nodes()) partition_node(node);
    for (const graph::Param& p : logical_.params()) add_grads(p);
    if (logical_.loss.valid()) out_.graph.loss = current_[logical_.loss.index()];
    if (logical_.logits.valid()) out_.graph.logits = current_[logical_.logits.index()];
    out_.graph.num_blocks = logical_.num_blocks;
    out_.graph.row_chunk = logical_.row_chunk;
    out_.divisions.resize(out_.graph.nodes().size());
    return std::move(out_);
  }

 private:
  Placement input_placement(const graph::Type& type) const {
    Placement p = replicated(type.num_dims());
    for (size_t d = 0; d < type.dims.size(); ++d)
      if (type.dims[d].name == Dim::Tokens) p.dims[d] = layout_.data();
    return p;
  }

  void add_source(ValueId logical, Placement placement) {
    const graph::Value& v = logical_.value(logical);
    graph::Type local = local_type(v.type, placement, layout_.mesh);
    ValueId id;
    if (const graph::Param* p = logical_.find_param(logical)) {
      graph::Param info = *p;
      info.grads.clear();
      id = out_.graph.add_param(v.name, std::move(local), info);
    } else {
      id = out_.graph.add_value({.name = v.name, .type = std::move(local), .kind = v.kind});
    }
    note(id, logical, std::move(placement));
    current_[logical.index()] = id;
  }

  void note(ValueId local, ValueId origin, Placement placement) {
    out_.placements.resize(out_.graph.values().size());
    out_.origin.resize(out_.graph.values().size());
    out_.placements[local.index()] = std::move(placement);
    out_.origin[local.index()] = origin;
  }

  // Atoms for each direction of the op: inner dims claim first, token rows take the data atoms and, where
  // nothing else uses them, those of sequence parallel.
  std::vector<AtomList> assign(const std::vector<OpDim>& rule) const {
    std::vector<AtomList> atoms(rule.size());
    AtomList claimed;
    for (size_t i = 0; i < rule.size(); ++i) {
      if (rule[i].key == Dim::Tokens) continue;
      atoms[i] = without(layout_.atoms(rule[i].key), claimed);
      claimed = concat(claimed, atoms[i]);
    }
    for (size_t i = 0; i < rule.size(); ++i) {
      if (rule[i].key != Dim::Tokens) continue;
      atoms[i] = layout_.data();
      if (rule[i].any_row && intersection(layout_.sequence, claimed).empty())
        atoms[i] = concat(atoms[i], layout_.sequence);
    }
    return atoms;
  }

  static Placement operand_placement(const graph::Type& type, const std::vector<OpDim>& rule,
                                     const std::vector<AtomList>& atoms, size_t index, bool output) {
    Placement p = replicated(type.num_dims());
    for (size_t i = 0; i < rule.size(); ++i) {
      const int dim = (output ? rule[i].out : rule[i].in)[index];
      if (dim >= 0) {
        AtomList& list = p.dims[static_cast<size_t>(dim)];
        list = concat(list, atoms[i]);
      } else if (output && dim == graph::kAbsent && !atoms[i].empty()) {
        p.partial = set_union(p.partial, atoms[i]);
        p.reduction = rule[i].reduction;
      }
    }
    return p;
  }

  void partition_node(const Node& node) {
    const auto in_types = graph::input_types(logical_, node), out_types = graph::output_types(logical_, node);
    QUINTET_CHECK(node.op->dims != nullptr, "[{}] has no sharding rule", node.op->name);
    const std::vector<OpDim> rule = node.op->dims(in_types, out_types, node.attrs);
    const std::vector<AtomList> atoms = assign(rule);
    check_divisible(node, rule, atoms, in_types, out_types);

    if (node.op->passes_partial && keep_partial(node)) return;

    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      inputs.push_back(use(node.inputs[i], operand_placement(in_types[i], rule, atoms, i, false), node));
    std::vector<Placement> placements;
    std::vector<graph::Type> types;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      placements.push_back(operand_placement(out_types[i], rule, atoms, i, true));
      types.push_back(local_type(out_types[i], placements.back(), layout_.mesh));
    }
    Node& local = append(*node.op, std::move(inputs), node.attrs, node, std::move(types));
    std::vector<Division> divisions;
    for (size_t i = 0; i < rule.size(); ++i) {
      const int64_t size = dim_size(rule[i], in_types, out_types);
      divisions.push_back({rule[i].key, atoms[i], size, shard_size(size, layout_.mesh.size(atoms[i]))});
    }
    out_.divisions.resize(out_.graph.nodes().size());
    out_.divisions.back() = std::move(divisions);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      note(local.outputs[i], node.outputs[i], std::move(placements[i]));
      current_[node.outputs[i].index()] = local.outputs[i];
    }
  }

  // Both operands are partial sums and lie alike: add the terms and leave the sum open.
  bool keep_partial(const Node& node) {
    const ValueId a = current_[node.inputs[0].index()], b = current_[node.inputs[1].index()];
    const Placement &pa = placement(a), &pb = placement(b);
    if (pa.partial.empty() || pb.partial.empty() || pa.dims != pb.dims) return false;
    Placement sum = pa;
    sum.partial = set_union(pa.partial, pb.partial);
    const ValueId left = use(node.inputs[0], sum, node), right = use(node.inputs[1], sum, node);
    Node& local = append(*node.op, {left, right}, node.attrs, node,
                         {local_type(logical_.type(node.outputs[0]), sum, layout_.mesh)});
    note(local.outputs[0], node.outputs[0], sum);
    current_[node.outputs[0].index()] = local.outputs[0];
    return true;
  }

  // The value as this node needs it.
  ValueId use(ValueId logical, const Placement& wanted, const Node& consumer) {
    const ValueId have = current_[logical.index()];
    QUINTET_CHECK(have.valid(), "[{}] uses a value that was not computed", consumer.op->name);
    const Placement from = placement(have);
    if (from == wanted) return have;
    const bool backward = consumer.phase != Phase::F;
    const auto key = std::make_tuple(have, wanted, backward);
    if (const auto it = copies_.find(key); it != copies_.end()) return it->second;

    ValueId id = have;
    for (const Transition& t : redistribute(from, wanted)) id = emit(t, id, logical, consumer);
    // A reduction settles the value for everybody; a gather or slice is a copy for this pass only.
    const bool settles = !from.partial.empty() && wanted.partial.empty();
    if (settles)
      current_[logical.index()] = id;
    else
      copies_[key] = id;
    return id;
  }

  ValueId emit(const Transition& t, ValueId input, ValueId logical, const Node& consumer) {
    using Kind = Transition::Kind;
    const graph::OpDef* op = nullptr;
    graph::Attrs attrs{{"atoms", as_attr(t.atoms)}};
    switch (t.kind) {
      case Kind::AllReduce:
        op = &graph::kAllReduce;
        attrs.set("reduce", as_attr(t.reduction));
        break;
      case Kind::ReduceScatter:
        op = &graph::kReduceScatter;
        attrs.set("dim", int64_t{t.dim});
        attrs.set("reduce", as_attr(t.reduction));
        break;
      case Kind::AllGather:
        op = &graph::kAllGather;
        attrs.set("dim", int64_t{t.dim});
        break;
      case Kind::AllToAll:
        op = &graph::kAllToAll;
        attrs.set("split", int64_t{t.split});
        attrs.set("join", int64_t{t.dim});
        break;
      case Kind::Slice:
        op = &graph::kSlice;
        attrs.set("dim", int64_t{t.dim});
        break;
      case Kind::ZeroUnlessFirst:
        op = &graph::kZeroUnlessFirst;
        break;
    }
    // Inside a row group only what is computed there can be exchanged chunk by chunk.
    const NodeId producer = out_.graph.value(input).producer;
    const int group = producer.valid() ? out_.graph.nodes()[producer.index()].row_group : -1;
    Node& node = append(*op, {input}, std::move(attrs), consumer,
                        {local_type(logical_.type(logical), t.after, layout_.mesh)});
    node.row_group = group == consumer.row_group ? group : -1;
    // The copy serves the whole pass: a user of phase B must not find it in W, behind which a schedule may
    // put it.
    const bool made_in_w = producer.valid() && out_.graph.nodes()[producer.index()].phase == Phase::W;
    if (node.phase == Phase::W && !made_in_w) node.phase = Phase::B;
    note(node.outputs[0], logical, t.after);
    return node.outputs[0];
  }

  Node& append(const graph::OpDef& op, std::vector<ValueId> inputs, graph::Attrs attrs, const Node& like,
               std::vector<graph::Type> types) {
    Node& node = out_.graph.add_node_typed(op, std::move(inputs), std::move(attrs), like.phase, like.block,
                                           std::move(types));
    node.row_group = like.row_group;
    return node;
  }

  // Contributions to a parameter's gradient must lie as the parameter does and be open over the same atoms,
  // so that they can be summed in place.
  void add_grads(const graph::Param& logical) {
    if (logical.grads.empty()) return;
    const ValueId param = current_[logical.value.index()];
    AtomList open;
    for (const ValueId g : logical.grads) open = set_union(open, placement(current_[g.index()]).partial);
    Placement wanted = placement(param);
    wanted.partial = open;
    std::vector<ValueId> grads;
    for (const ValueId g : logical.grads) {
      const ValueId local = current_[g.index()];
      QUINTET_CHECK(placement(local) == wanted, "gradient of {} lies {}, wanted {}",
                    logical_.value(logical.value).name,
                    to_string(placement(local), logical_.type(g), layout_.mesh),
                    to_string(wanted, logical_.type(g), layout_.mesh));
      grads.push_back(local);
    }
    out_.graph.find_param(param)->grads = std::move(grads);
  }

  static int64_t dim_size(const OpDim& d, const std::vector<graph::Type>& in,
                          const std::vector<graph::Type>& out) {
    for (size_t i = 0; i < in.size(); ++i)
      if (d.in[i] >= 0) return in[i].size(d.in[i]);
    for (size_t i = 0; i < out.size(); ++i)
      if (d.out[i] >= 0) return out[i].size(d.out[i]);
    return 1;
  }

  void check_divisible(const Node& node, const std::vector<OpDim>& rule, const std::vector<AtomList>& atoms,
                       const std::vector<graph::Type>& in, const std::vector<graph::Type>& out) const {
    for (size_t i = 0; i < rule.size(); ++i) {
      const int parts = layout_.mesh.size(atoms[i]);
      const int64_t size = dim_size(rule[i], in, out);
      if (!rule[i].padded && size % parts != 0)
        base::fail_user("[{}] {} = {} cannot be divided over {} = {} ranks", node.op->name,
                        graph::to_string(rule[i].key), size, layout_.mesh.name(atoms[i]), parts);
    }
  }

  const Placement& placement(ValueId local) const { return out_.placements[local.index()]; }

  const graph::Graph& logical_;
  const Layout& layout_;
  LocalGraph out_;
  std::vector<ValueId> current_;  // by logical ValueId: where the value now is
  std::map<std::tuple<ValueId, Placement, bool>, ValueId> copies_;
};

}  // namespace

LocalGraph partition(const graph::Graph& logical, const Layout& layout) {
  return Partitioner(logical, layout).run();
}

}  // namespace quintet::layout
