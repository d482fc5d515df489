#include "layout/partition.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "layout/partitioner.h"

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

// Rows on their way to experts are not cut: each rank has room for what may come (plan_slots()).
bool is_cut(Dim name) { return name != Dim::Slots && name != Dim::Routed && name != Dim::Counts; }

// The size that a direction of an op divides, told from an operand that is cut if there is one.
graph::DimSize dim_size(const OpDim& d, const std::vector<graph::Type>& in,
                        const std::vector<graph::Type>& out) {
  graph::DimSize any{d.key, 1};
  const auto look = [&](const std::vector<graph::Type>& types, const std::vector<int>& dims) {
    for (size_t i = 0; i < types.size(); ++i) {
      if (dims[i] < 0) continue;
      any = types[i].dims[static_cast<size_t>(dims[i])];
      if (is_cut(any.name)) return true;
    }
    return false;
  };
  if (!look(in, d.in)) look(out, d.out);
  return any;
}

// Atoms for each direction of an op. Inner dims claim first; token rows take the data atoms and, where
// nothing else uses them, those of sequence parallel. An op that needs whole sequences takes the atoms that
// hold different ones, and may divide its heads by context atoms instead (Ulysses).
std::vector<AtomList> assign(const Layout& layout, const std::vector<OpDim>& rule) {
  bool whole_sequences = false;
  for (const OpDim& d : rule) whole_sequences |= d.key == Dim::Tokens && !d.any_row;
  std::vector<AtomList> atoms(rule.size());
  AtomList claimed;
  for (size_t i = 0; i < rule.size(); ++i) {
    if (rule[i].key == Dim::Tokens) continue;
    AtomList wanted = layout.atoms(rule[i].key);
    if (whole_sequences && rule[i].key == Dim::KvHeads) wanted = concat(wanted, layout.context.kv_heads);
    if (whole_sequences && rule[i].key == Dim::Heads) wanted = concat(wanted, layout.context.heads);
    atoms[i] = without(wanted, claimed);
    claimed = concat(claimed, atoms[i]);
  }
  for (size_t i = 0; i < rule.size(); ++i) {
    if (rule[i].key != Dim::Tokens) continue;
    atoms[i] = rule[i].any_row ? layout.data() : layout.samples;
    const AtomList& more = rule[i].spread ? layout.tensor : layout.sequence;
    if (rule[i].any_row && intersection(more, claimed).empty()) atoms[i] = concat(atoms[i], more);
  }
  return atoms;
}

bool divides_further(const Placement& p, const Placement& wanted) {
  if (p.dims == wanted.dims) return false;
  for (size_t d = 0; d < p.dims.size(); ++d) {
    if (p.dims[d].size() < wanted.dims[d].size()) return false;
    if (!std::equal(wanted.dims[d].begin(), wanted.dims[d].end(), p.dims[d].begin())) return false;
  }
  return true;
}

}  // namespace

Partitioner::Partitioner(const graph::Graph& logical, const Layout& layout)
    : logical_(logical), layout_(layout), current_(logical.values().size()) {}

LocalGraph Partitioner::run() {
  for (size_t i = 0; i < logical_.values().size(); ++i) {
    const graph::Value& v = logical_.values()[i];
    const ValueId id(static_cast<int32_t>(i));
    if (v.kind == graph::ValueKind::Input) add_source(id, input_placement(v.type));
    if (v.kind == graph::ValueKind::Param) add_source(id, param_placement(layout_, v.type));
    if (v.kind == graph::ValueKind::State) add_source(id, replicated(v.type.num_dims()));
  }
  for (const Node& node : logical_.nodes()) partition_node(node);
  for (const graph::Param& p : logical_.params()) add_grads(p);
  if (logical_.loss.valid()) out_.graph.loss = current(logical_.loss);
  if (logical_.logits.valid()) out_.graph.logits = current(logical_.logits);
  for (graph::StepSum sum : logical_.step_sums) {
    sum.value = current(sum.value);
    out_.graph.step_sums.push_back(std::move(sum));
  }
  for (graph::BiasUpdate update : logical_.bias_updates) {
    update.bias = current(update.bias);
    update.load = current(update.load);
    out_.graph.bias_updates.push_back(update);
  }
  out_.graph.num_blocks = logical_.num_blocks;
  out_.graph.row_chunk = logical_.row_chunk;
  out_.divisions.resize(out_.graph.nodes().size());
  return std::move(out_);
}

Placement Partitioner::input_placement(const graph::Type& type) const {
  Placement p = replicated(type.num_dims());
  for (size_t d = 0; d < type.dims.size(); ++d)
    if (type.dims[d].name == Dim::Tokens) p.dims[d] = layout_.data();
  return p;
}

void Partitioner::add_source(ValueId logical, Placement placement) {
  const graph::Value& v = logical_.value(logical);
  graph::Type local = local_of(v.type, placement);
  ValueId id;
  if (const graph::Param* p = logical_.find_param(logical)) {
    graph::Param info = *p;
    info.grads.clear();
    id = out_.graph.add_param(v.name, std::move(local), info);
  } else {
    id = out_.graph.add_value({.name = v.name, .type = std::move(local), .kind = v.kind});
  }
  settle(logical, id, std::move(placement));
}

void Partitioner::note(ValueId local, ValueId origin, Placement placement) {
  out_.placements.resize(out_.graph.values().size());
  out_.origin.resize(out_.graph.values().size());
  out_.placements[local.index()] = std::move(placement);
  out_.origin[local.index()] = origin;
}

void Partitioner::settle(ValueId logical, ValueId local, Placement placement) {
  note(local, logical, std::move(placement));
  current_[logical.index()] = local;
}

// How many rows reach a rank's experts is known in the step only: such dims have their bound as local size.
graph::Type Partitioner::local_of(const graph::Type& global, const Placement& p) const {
  graph::Type local = local_type(global, p, layout_.mesh);
  for (size_t d = 0; d < local.dims.size(); ++d) {
    if (local.dims[d].name == Dim::Slots) local.dims[d].size = slot_rows_;
    if (local.dims[d].name == Dim::Routed) local.dims[d].size = routed_rows_;
    if (local.dims[d].name == Dim::Counts) local.dims[d].size = global.dims[d].size;
  }
  return local;
}

Partitioner::Divided Partitioner::divide(const Node& node) const {
  QUINTET_CHECK(node.op->dims != nullptr, "[{}] has no sharding rule", node.op->name);
  Divided d{node, graph::input_types(logical_, node), graph::output_types(logical_, node), {}, {}};
  d.rule = node.op->dims(d.in, d.out, node.attrs);
  d.atoms = assign(layout_, d.rule);
  for (size_t i = 0; i < d.rule.size(); ++i) {
    const int parts = layout_.mesh.size(d.atoms[i]);
    const auto [name, size] = dim_size(d.rule[i], d.in, d.out);
    if (!d.rule[i].padded && is_cut(name) && size % parts != 0)
      base::fail_user("[{}] {} = {} cannot be divided over {} = {} ranks", node.op->name,
                      graph::to_string(d.rule[i].key), size, layout_.mesh.name(d.atoms[i]), parts);
  }
  return d;
}

Placement Partitioner::placement_of(const Divided& d, size_t operand, bool output) const {
  Placement p = replicated((output ? d.out : d.in)[operand].num_dims());
  for (size_t i = 0; i < d.rule.size(); ++i) {
    const int dim = (output ? d.rule[i].out : d.rule[i].in)[operand];
    if (dim >= 0) {
      AtomList& list = p.dims[static_cast<size_t>(dim)];
      list = concat(list, d.atoms[i]);
    } else if (output && dim == graph::kAbsent && !d.atoms[i].empty()) {
      p.partial = set_union(p.partial, d.atoms[i]);
      p.reduction = d.rule[i].reduction;
    }
  }
  return p;
}

void Partitioner::partition_node(const Node& node) {
  if (partition_exchange(node)) return;
  const Divided d = divide(node);
  if (node.op->passes_partial && add_where_they_lie(d)) return;
  if (layout_.context.ring && node.op == &graph::kAttention) return partition_ring(d);
  if (layout_.context.ring && node.op == &graph::kAttentionDx) return partition_ring_backward(d);

  graph::Attrs attrs = node.attrs;
  if (node.op == &graph::kRoute) plan_slots(node, attrs);
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(use(node.inputs[i], placement_of(d, i, false), node));
  std::vector<Placement> placements;
  std::vector<graph::Type> types;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    placements.push_back(placement_of(d, i, true));
    types.push_back(local_of(d.out[i], placements.back()));
  }
  // Sizes that an op cannot tell from its operands.
  if (attrs.find("token_rows"))
    for (size_t i = 0; i < d.rule.size(); ++i)
      if (d.rule[i].key == Dim::Tokens)
        attrs.set("token_rows", attrs.integer("token_rows") / layout_.mesh.size(d.atoms[i]));
  if (node.op == &graph::kGroupedLinearDw) attrs.set("experts", types[0].size(0));
  const Node& local = append(d, *node.op, std::move(inputs), std::move(attrs), std::move(types));
  const std::vector<ValueId> outputs = local.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) settle(node.outputs[i], outputs[i], std::move(placements[i]));
}

// Both operands lie alike: when they are partial sums, add the terms and leave the sum open; when they are
// divided further than the op asks for, add the parts, so that one value is gathered and not two.
bool Partitioner::add_where_they_lie(const Divided& d) {
  const Node& node = d.node;
  const Placement &pa = placement(current(node.inputs[0])), &pb = placement(current(node.inputs[1]));
  if (pa.dims != pb.dims || pa.partial.empty() != pb.partial.empty()) return false;
  if (pa.partial.empty() && !divides_further(pa, placement_of(d, 0, true))) return false;
  Placement sum = pa;
  sum.partial = set_union(pa.partial, pb.partial);
  const ValueId left = use(node.inputs[0], sum, node), right = use(node.inputs[1], sum, node);
  const Node& local =
      append(*node.op, {left, right}, node.attrs, node, {local_of(logical_.type(node.outputs[0]), sum)});
  settle(node.outputs[0], local.outputs[0], sum);
  return true;
}

ValueId Partitioner::use(ValueId logical, const Placement& wanted, const Node& consumer) {
  const ValueId have = current(logical);
  QUINTET_CHECK(have.valid(), "[{}] uses a value that was not computed", consumer.op->name);
  const Placement from = placement(have);
  if (from == wanted) return have;
  const bool backward = consumer.phase != Phase::F;
  const auto key = std::make_tuple(have, wanted, backward);
  if (const auto it = copies_.find(key); it != copies_.end()) return it->second;

  const std::vector<Transition> steps = redistribute(from, wanted);
  const bool gathers = !steps.empty() && steps[0].kind == Transition::Kind::AllGather;
  if (gathers && logical_.value(logical).kind == graph::ValueKind::Input) return load(logical, wanted);
  ValueId id = have;
  for (const Transition& t : steps) id = emit(t, id, logical, consumer);
  // A reduction settles the value for everybody; a gather or slice is a copy for this pass only.
  const bool settles = !from.partial.empty() && wanted.partial.empty();
  if (settles)
    current_[logical.index()] = id;
  else
    copies_[key] = id;
  return id;
}

// Inputs are not exchanged: a rank loads the rows of other context ranks itself, as an input of its own whose
// name says of how many ranks it has the rows ("documents:4").
ValueId Partitioner::load(ValueId input, const Placement& wanted) {
  const auto key = std::make_tuple(current(input), wanted, false);
  if (const auto it = copies_.find(key); it != copies_.end()) return it->second;
  const graph::Value& v = logical_.value(input);
  const int ranks =
      layout_.context.ranks * layout_.mesh.size(layout_.samples) / layout_.mesh.size(wanted.dims[0]);
  const ValueId id = out_.graph.add_value({.name = fmt::format("{}:{}", v.name, ranks),
                                           .type = local_of(v.type, wanted),
                                           .kind = graph::ValueKind::Input});
  note(id, input, wanted);
  return copies_[key] = id;
}

ValueId Partitioner::emit(const Transition& t, ValueId input, ValueId logical, const Node& consumer) {
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
  Node& node = append(*op, {input}, std::move(attrs), consumer, {local_of(logical_.type(logical), t.after)});
  node.row_group = group == consumer.row_group ? group : -1;
  // The copy serves the whole pass: a user of phase B must not find it in W, behind which a schedule may
  // put it.
  const bool made_in_w = producer.valid() && out_.graph.nodes()[producer.index()].phase == Phase::W;
  if (node.phase == Phase::W && !made_in_w) node.phase = Phase::B;
  const ValueId result = node.outputs[0];
  note(result, logical, t.after);
  return result;
}

Node& Partitioner::append(const graph::OpDef& op, std::vector<ValueId> inputs, graph::Attrs attrs,
                          const Node& like, std::vector<graph::Type> types) {
  Node& node = out_.graph.add_node_typed(op, std::move(inputs), std::move(attrs), like.phase, like.block,
                                         std::move(types));
  node.row_group = like.row_group;
  return node;
}

Node& Partitioner::append(const Divided& d, const graph::OpDef& op, std::vector<ValueId> inputs,
                          graph::Attrs attrs, std::vector<graph::Type> types) {
  // Rows of cut sequences come in an order of their own (base/row_order.h), which kernels that look across
  // rows must know.
  if (attrs.find("cp")) attrs.set("cp", int64_t{layout_.context.ranks});
  if (attrs.find("ulysses")) attrs.set("ulysses", int64_t{layout_.mesh.size(layout_.context.heads)});
  Node& node = append(op, std::move(inputs), std::move(attrs), d.node, std::move(types));
  std::vector<Division> divisions;
  for (size_t i = 0; i < d.rule.size(); ++i) {
    const int64_t size = dim_size(d.rule[i], d.in, d.out).size;
    divisions.push_back({d.rule[i].key, d.atoms[i], size, shard_size(size, layout_.mesh.size(d.atoms[i]))});
  }
  out_.divisions.resize(out_.graph.nodes().size());
  out_.divisions.back() = std::move(divisions);
  return node;
}

// Contributions to a parameter's gradient must lie as the parameter does and be open over the same atoms,
// so that they can be summed in place.
void Partitioner::add_grads(const graph::Param& logical) {
  if (logical.grads.empty()) return;
  const ValueId param = current(logical.value);
  AtomList open;
  for (const ValueId g : logical.grads) open = set_union(open, placement(current(g)).partial);
  Placement wanted = placement(param);
  wanted.partial = open;
  std::vector<ValueId> grads;
  for (const ValueId g : logical.grads) {
    const ValueId local = current(g);
    QUINTET_CHECK(placement(local) == wanted, "gradient of {} lies {}, wanted {}",
                  logical_.value(logical.value).name,
                  to_string(placement(local), logical_.type(g), layout_.mesh),
                  to_string(wanted, logical_.type(g), layout_.mesh));
    grads.push_back(local);
  }
  out_.graph.find_param(param)->grads = std::move(grads);
}

LocalGraph partition(const graph::Graph& logical, const Layout& layout) {
  return Partitioner(logical, layout).run();
}

}  // namespace quintet::layout
