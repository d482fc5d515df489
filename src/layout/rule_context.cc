#include <algorithm>

#include "base/error.h"
#include "layout/rule.h"
#include "layout/rules/families.h"

namespace quintet::layout {

using graph::Dim;
using graph::Node;
using graph::NodeId;
using graph::OpDim;
using graph::Phase;
using graph::ValueId;

namespace {

// The size that a direction of an op shards, from an operand that is sharded if there is one.
graph::DimSize dim_size(const OpDim& d, const std::vector<graph::Type>& in,
                        const std::vector<graph::Type>& out) {
  graph::DimSize any{d.key, 1};
  const auto look = [&](const std::vector<graph::Type>& types, const std::vector<int>& dims) {
    for (size_t i = 0; i < types.size(); ++i) {
      if (dims[i] < 0) continue;
      any = types[i].dims[static_cast<size_t>(dims[i])];
      if (!graph::is_ragged(any.name)) return true;
    }
    return false;
  };
  if (!look(in, d.in)) look(out, d.out);
  return any;
}

// Atoms for each direction of an op. Inner dims claim first; token rows take the data atoms and, where
// nothing else uses them, those of sequence parallel. An op that needs whole sequences takes the atoms that
// hold different ones, and may shard its heads by context atoms instead (Ulysses). `split`: the direction
// that the tensor ranks divide instead of the dims that they usually do; -1: none.
std::vector<AtomList> assign(const Layout& layout, const Context& context,
                             const std::vector<OpDim>& directions, std::optional<int> split) {
  bool whole_sequences = false;
  for (const OpDim& d : directions) whole_sequences |= d.key == Dim::Tokens && !d.any_row;
  std::vector<AtomList> atoms(directions.size());
  AtomList claimed;
  for (size_t i = 0; i < directions.size(); ++i) {
    if (directions[i].key == Dim::Tokens) continue;
    AtomList wanted = directions[i].key == Dim::Context ? context.rows : layout.atoms(directions[i].key);
    if (split) wanted = split_atoms(layout, directions[i].key, static_cast<int>(i) == *split);
    if (whole_sequences && directions[i].key == Dim::KvHeads) wanted = concat(wanted, context.kv_heads);
    if (whole_sequences && directions[i].key == Dim::Heads) wanted = concat(wanted, context.heads);
    atoms[i] = without(wanted, claimed);
    claimed = concat(claimed, atoms[i]);
  }
  for (size_t i = 0; i < directions.size(); ++i) {
    if (directions[i].key != Dim::Tokens) continue;
    atoms[i] = directions[i].any_row ? layout.data() : layout.samples;
    const AtomList& more = directions[i].spread ? layout.tensor : layout.sequence;
    if (directions[i].any_row && intersection(more, claimed).empty()) atoms[i] = concat(atoms[i], more);
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

// For operands that are placed alike: when they are partial sums, adds the terms and leaves the sum open;
// when they are sharded further than the op needs, adds the parts, so that one value is gathered, not two.
bool add_in_place(RuleContext& c, const Divided& d) {
  const Node& node = d.node;
  const Placement &pa = c.placement(c.current(node.inputs[0])), &pb = c.placement(c.current(node.inputs[1]));
  if (pa.dims != pb.dims || pa.partial.empty() != pb.partial.empty()) return false;
  if (pa.partial.empty() && !divides_further(pa, c.placement_of(d, 0, Side::Output))) return false;
  Placement sum = pa;
  sum.partial = set_union(pa.partial, pb.partial);
  const ValueId left = c.use(node.inputs[0], sum, node), right = c.use(node.inputs[1], sum, node);
  const Node& local = c.emit(*node.op, {left, right}, node.attrs, node, {c.local_of(d.out[0], sum)});
  c.settle(node.outputs[0], local.outputs[0], sum);
  return true;
}

}  // namespace

RuleContext::RuleContext(const graph::Graph& logical, const Layout& layout)
    : logical_(logical),
      layout_(layout),
      splits_(tensor_splits(logical, layout)),
      current_(logical.values().size()) {}

void RuleContext::note(ValueId local, ValueId origin, Placement placement) {
  out_.placements.resize(out_.graph.values().size());
  out_.origin.resize(out_.graph.values().size());
  out_.placements[local.index()] = std::move(placement);
  out_.origin[local.index()] = origin;
}

void RuleContext::settle(ValueId logical, ValueId local, Placement placement) {
  note(local, logical, std::move(placement));
  current_[logical.index()] = local;
}

// Ragged dims have their bound as local size.
graph::Type RuleContext::local_of(const graph::Type& global, const Placement& p) const {
  graph::Type local = local_type(global, p, layout_.mesh);
  for (size_t d = 0; d < local.dims.size(); ++d) {
    if (!graph::is_ragged(local.dims[d].name)) continue;
    const auto rows = bounds_.find(local.dims[d].name);
    local.dims[d].size = rows == bounds_.end() ? global.dims[d].size : rows->second;
  }
  return local;
}

const Context& RuleContext::context_of(const Node& node) const {
  const bool windowed = node.attrs.find("window") != nullptr && node.attrs.integer("window") > 0;
  return windowed ? layout_.windowed_context : layout_.context;
}

std::optional<int> RuleContext::split_of(const Divided& d) const {
  const auto split = splits_.empty() ? splits_.end() : splits_.find(weight_of_linear(d.node));
  if (split == splits_.end()) return {};
  return split_direction(d.node, d.in, d.out, split->second);
}

Divided RuleContext::divide(const Node& node) const {
  QUINTET_CHECK(node.op->dims != nullptr, "[{}] has neither dims to shard nor a sharding rule",
                node.op->name);
  Divided d{node, graph::input_types(logical_, node), graph::output_types(logical_, node), {}, {}};
  d.directions = node.op->dims(d.in, d.out, node.attrs);
  d.atoms = assign(layout_, context_of(node), d.directions, split_of(d));
  for (size_t i = 0; i < d.directions.size(); ++i) {
    const int parts = layout_.mesh.size(d.atoms[i]);
    const auto [name, size] = dim_size(d.directions[i], d.in, d.out);
    if (!d.directions[i].padded && !graph::is_ragged(name) && size % parts != 0)
      base::fail_user("[{}] {} = {} cannot be divided over {} = {} ranks", node.op->name,
                      graph::to_string(d.directions[i].key), size, layout_.mesh.name(d.atoms[i]), parts);
  }
  return d;
}

Placement RuleContext::placement_of(const Divided& d, size_t operand, Side side) const {
  const bool output = side == Side::Output;
  Placement p = replicated((output ? d.out : d.in)[operand].num_dims());
  for (size_t i = 0; i < d.directions.size(); ++i) {
    const int dim = (output ? d.directions[i].out : d.directions[i].in)[operand];
    if (dim >= 0) {
      AtomList& list = p.dims[static_cast<size_t>(dim)];
      list = concat(list, d.atoms[i]);
    } else if (output && dim == graph::kAbsent && !d.atoms[i].empty()) {
      p.partial = set_union(p.partial, d.atoms[i]);
      p.reduction = d.directions[i].reduction;
    }
  }
  return p;
}

void RuleContext::emit_by_dims(const Divided& d, graph::Attrs attrs) {
  const Node& node = d.node;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(use(node.inputs[i], placement_of(d, i, Side::Input), node));
  std::vector<Placement> placements;
  std::vector<graph::Type> types;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    placements.push_back(placement_of(d, i, Side::Output));
    types.push_back(local_of(d.out[i], placements.back()));
  }
  const Node& local = emit(d, *node.op, std::move(inputs), std::move(attrs), std::move(types));
  const std::vector<ValueId> outputs = local.outputs;
  for (size_t i = 0; i < outputs.size(); ++i) settle(node.outputs[i], outputs[i], std::move(placements[i]));
}

void RuleContext::set_once(std::vector<AtomList> once) {
  out_.once.resize(out_.graph.nodes().size());
  out_.once.back() = std::move(once);
}

void RuleContext::set_divisions(std::vector<Division> divisions) {
  out_.divisions.resize(out_.graph.nodes().size());
  out_.divisions.back() = std::move(divisions);
}

void by_dims(RuleContext& c, const Node& node) {
  if (const Rule rule = rules::of_step(node.op->step.kind)) return rule(c, node);
  const Divided d = c.divide(node);
  if (node.op->passes_partial && add_in_place(c, d)) return;
  c.emit_by_dims(d, node.attrs);
}

ValueId RuleContext::use(ValueId logical, const Placement& wanted, const Node& consumer) {
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
  for (const Transition& t : steps) id = transition(t, id, logical, consumer);
  // A reduction settles the value for all users; a gather or slice is a copy for this pass only.
  const bool settles = !from.partial.empty() && wanted.partial.empty();
  if (settles)
    current_[logical.index()] = id;
  else
    copies_[key] = id;
  return id;
}

// Inputs are not exchanged: a rank loads the rows of other context ranks itself, as an input of its own.
ValueId RuleContext::load(ValueId input, const Placement& wanted) {
  const auto key = std::make_tuple(current(input), wanted, false);
  if (const auto it = copies_.find(key); it != copies_.end()) return it->second;
  const graph::Value& v = logical_.value(input);
  const int ranks =
      layout_.context.ranks * layout_.mesh.size(layout_.samples) / layout_.mesh.size(wanted.dims[0]);
  graph::InputSpec spec = v.input;
  spec.rows.ranks = ranks;
  const ValueId id = out_.graph.add_input(std::move(spec), local_of(v.type, wanted));
  note(id, input, wanted);
  return copies_[key] = id;
}

ValueId RuleContext::transition(const Transition& t, ValueId input, ValueId logical, const Node& consumer) {
  rules::TransitionNode step = rules::node_of(t);
  // Inside a row group only values computed there can be exchanged chunk by chunk.
  const NodeId producer = out_.graph.value(input).producer;
  const int group = producer.valid() ? out_.graph.nodes()[producer.index()].row_group : -1;
  Node& node =
      emit(*step.op, {input}, std::move(step.attrs), consumer, {local_of(logical_.type(logical), t.after)});
  node.row_group = group == consumer.row_group ? group : -1;
  // The copy is for the whole pass: a user in phase B must not depend on a copy in W, which a schedule may
  // move after it.
  const bool made_in_w = producer.valid() && out_.graph.nodes()[producer.index()].phase == Phase::W;
  if (node.phase == Phase::W && !made_in_w) node.phase = Phase::B;
  const ValueId result = node.outputs[0];
  note(result, logical, t.after);
  return result;
}

Node& RuleContext::emit(const graph::OpDef& op, std::vector<ValueId> inputs, graph::Attrs attrs,
                        const Node& like, std::vector<graph::Type> types) {
  Node& node = out_.graph.add_node_typed(op, std::move(inputs), std::move(attrs), like.phase, like.block,
                                         std::move(types));
  node.row_group = like.row_group;
  return node;
}

Node& RuleContext::emit(const Divided& d, const graph::OpDef& op, std::vector<ValueId> inputs,
                        graph::Attrs attrs, std::vector<graph::Type> types) {
  Node& node = emit(op, std::move(inputs), std::move(attrs), d.node, std::move(types));
  std::vector<Division> divisions;
  for (size_t i = 0; i < d.directions.size(); ++i) {
    const int64_t size = dim_size(d.directions[i], d.in, d.out).size;
    divisions.push_back(
        {d.directions[i].key, d.atoms[i], size, shard_size(size, layout_.mesh.size(d.atoms[i]))});
  }
  out_.divisions.resize(out_.graph.nodes().size());
  out_.divisions.back() = std::move(divisions);
  return node;
}

}  // namespace quintet::layout
