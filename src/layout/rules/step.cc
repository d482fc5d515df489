// Sharding rules of step ops, which work on values as they are stored.
#include "base/error.h"
#include "layout/rules/families.h"

namespace quintet::layout::rules {

using graph::Node;
using graph::ValueId;

namespace {

// Atoms over which ranks hold different elements, or different partial sums, of a value.
AtomList dividing(const Placement& p) {
  AtomList atoms = set_union(p.flat, p.partial);
  for (const AtomList& dim : p.dims) atoms = set_union(atoms, dim);
  return atoms;
}

// Per operand of a sum over `atoms`, the atoms over which it is replicated: only the first of those ranks
// counts it.
std::vector<AtomList> counted_once(const RuleContext& c, const Node& node, const AtomList& atoms) {
  std::vector<AtomList> once;
  for (const ValueId in : node.inputs) once.push_back(without(atoms, dividing(c.placement(c.current(in)))));
  return once;
}

std::vector<ValueId> all_current(const RuleContext& c, const Node& node) {
  std::vector<ValueId> inputs;
  for (const ValueId in : node.inputs) inputs.push_back(c.current(in));
  return inputs;
}

// All operands but scalars share the storage of the first, and so do the results.
void elementwise(RuleContext& c, const Node& node) {
  const Placement at = c.placement(c.current(node.inputs[0]));
  std::vector<ValueId> inputs;
  for (const ValueId in : node.inputs) {
    const bool scalar = c.logical().type(in).dims.empty();
    if (node.op->step.reads_norms && inputs.size() + 1 == node.inputs.size()) {
      inputs.push_back(c.use(in, replicated(1), node));
      continue;
    }
    QUINTET_CHECK(scalar || c.placement(c.current(in)) == at, "[{}] works on values stored differently",
                  node.op->name);
    inputs.push_back(scalar ? c.use(in, replicated(0), node) : c.current(in));
  }
  std::vector<graph::Type> types;
  for (const ValueId out : node.outputs) types.push_back(c.local_of(c.logical().type(out), at));
  graph::Attrs attrs = node.attrs;
  std::vector<int64_t> ranges = attrs.integers("ranges");
  ranges[2] = c.local_of(c.logical().type(node.inputs[0]), at).count();
  attrs.set("ranges", std::move(ranges));
  const std::vector<ValueId> outputs =
      c.emit(*node.op, std::move(inputs), std::move(attrs), node, std::move(types)).outputs;
  for (size_t i = 0; i < outputs.size(); ++i) c.settle(node.outputs[i], outputs[i], at);
}

// Operands and results are replicated.
void on_all_ranks(RuleContext& c, const Node& node) {
  std::vector<ValueId> inputs;
  for (const ValueId in : node.inputs)
    inputs.push_back(c.use(in, replicated(c.logical().type(in).num_dims()), node));
  const std::vector<ValueId> outputs =
      c.emit(*node.op, std::move(inputs), node.attrs, node, graph::output_types(c.logical(), node)).outputs;
  for (size_t i = 0; i < outputs.size(); ++i)
    c.settle(node.outputs[i], outputs[i], replicated(c.logical().type(node.outputs[i]).num_dims()));
}

// The result is partial over the pipeline axis too: its stages hold different parameters.
void norm_terms(RuleContext& c, const Node& node) {
  AtomList atoms = c.layout().pipeline;
  for (const ValueId in : node.inputs) atoms = set_union(atoms, dividing(c.placement(c.current(in))));
  std::vector<AtomList> once = counted_once(c, node, atoms);
  for (AtomList& list : once) list = without(list, c.layout().pipeline);
  graph::Attrs attrs = node.attrs;
  std::vector<int64_t> ranges = attrs.integers("ranges");
  for (size_t i = 0; i < node.inputs.size(); ++i)
    ranges[i * 4 + 2] = c.local().type(c.current(node.inputs[i])).count();
  attrs.set("ranges", std::move(ranges));
  const ValueId sum =
      c.emit(*node.op, all_current(c, node), std::move(attrs), node, {c.logical().type(node.outputs[0])})
          .outputs[0];
  c.set_once(std::move(once));
  Placement partial = replicated(0);
  partial.partial = atoms;
  partial.reduction = node.op->step.reduction;
  c.settle(node.outputs[0], sum, partial);
}

// The same per parameter: the result is a vector of sums.
void parameter_norms(RuleContext& c, const Node& node) {
  std::vector<int64_t> ranges = node.attrs.integers("ranges");
  size_t first = node.inputs.size() - node.op->step.reads_norms;  // of what belongs to no parameter
  while (c.logical().type(node.inputs[first - 1]).dims.empty()) --first;
  const size_t params = ranges.size() / 4, each = first / params;
  AtomList atoms = c.layout().pipeline;
  std::vector<ValueId> inputs;
  std::vector<AtomList> once;
  for (size_t i = 0; i < params * each; ++i) {
    inputs.push_back(c.current(node.inputs[i]));
    atoms = set_union(atoms, dividing(c.placement(inputs.back())));
  }
  for (const ValueId in : inputs)
    once.push_back(without(without(atoms, dividing(c.placement(in))), c.layout().pipeline));
  for (size_t i = params * each; i < node.inputs.size(); ++i)
    inputs.push_back(c.use(node.inputs[i], replicated(c.logical().type(node.inputs[i]).num_dims()), node));
  for (size_t p = 0; p < params; ++p) ranges[4 * p + 2] = c.local().type(inputs[p * each]).count();
  graph::Attrs attrs = node.attrs;
  attrs.set("ranges", std::move(ranges));
  const ValueId sums =
      c.emit(*node.op, std::move(inputs), std::move(attrs), node, {c.logical().type(node.outputs[0])})
          .outputs[0];
  c.set_once(std::move(once));
  Placement partial = replicated(1);
  partial.partial = atoms;
  c.settle(node.outputs[0], sums, partial);
}

}  // namespace

Rule of_step(graph::StepKind kind) {
  switch (kind) {
    case graph::StepKind::Update:
    case graph::StepKind::Average:
    case graph::StepKind::Matrices:
      return elementwise;
    case graph::StepKind::Replicated:
      return on_all_ranks;
    case graph::StepKind::GradientNorm:
      return norm_terms;
    case graph::StepKind::ParameterNorms:
      return parameter_norms;
    case graph::StepKind::FlatPieces:
    case graph::StepKind::MatrixPieces:  // programs only
    case graph::StepKind::None:
      return nullptr;
  }
  base::fail_internal("unknown kind of step op");
}

// One all-reduce over all ranks carries all sums.
void step_sums(RuleContext& c, const Node& node) {
  const AtomList everything = c.layout().everything();
  int64_t count = 0;
  for (const ValueId in : node.inputs) count += c.logical().type(in).count();
  const graph::Type packed_type{graph::DType::F64, {{graph::Dim::Flat, count}}};
  const std::vector<AtomList> once = counted_once(c, node, everything);
  ValueId packed = c.emit(*node.op, all_current(c, node), {}, node, {packed_type}).outputs[0];
  c.set_once(once);
  c.note(packed, node.inputs[0], replicated(1));
  if (!everything.empty()) {
    TransitionNode reduce =
        node_of({.kind = Transition::Kind::AllReduce, .atoms = everything, .after = replicated(1)});
    packed = c.emit(*reduce.op, {packed}, std::move(reduce.attrs), node, {packed_type}).outputs[0];
    c.note(packed, node.inputs[0], replicated(1));
  }
  int64_t first = 0;
  for (const ValueId out : node.outputs) {
    const graph::Type& type = c.logical().type(out);
    const ValueId view = c.emit(graph::kView, {packed}, {{"first", first}}, node, {type}).outputs[0];
    c.settle(out, view, replicated(type.num_dims()));
    first += type.count();
  }
}

// A maximum needs no care about copies: one all-reduce over all ranks.
void step_maxima(RuleContext& c, const Node& node) {
  const AtomList everything = c.layout().everything();
  const graph::Type& type = c.logical().type(node.outputs[0]);
  ValueId maxima = c.emit(*node.op, all_current(c, node), {}, node, {type}).outputs[0];
  if (!everything.empty()) {
    c.note(maxima, node.outputs[0], replicated(1));
    TransitionNode reduce = node_of({.kind = Transition::Kind::AllReduce,
                                     .atoms = everything,
                                     .reduction = graph::Reduction::Max,
                                     .after = replicated(1)});
    maxima = c.emit(*reduce.op, {maxima}, std::move(reduce.attrs), node, {type}).outputs[0];
  }
  c.settle(node.outputs[0], maxima, replicated(1));
}

}  // namespace quintet::layout::rules
