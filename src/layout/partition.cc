#include "layout/partition.h"

#include <functional>

#include "base/error.h"
#include "graph/cache_ops.h"
#include "layout/rule.h"

namespace quintet::layout {

using graph::Dim;
using graph::Node;
using graph::ValueId;

namespace {

using RuleTable = std::map<const graph::OpDef*, Rule>;

// The walk over the logical graph.
class Partitioner : public RuleContext {
 public:
  // The placement of inputs, parameters and states.
  using Sources = std::function<Placement(ValueId)>;
  Partitioner(const graph::Graph& logical, const Layout& layout, Sources sources)
      : RuleContext(logical, layout), sources_(std::move(sources)) {}
  LocalGraph run(const RuleTable& rules);

 private:
  void add_source(ValueId logical, Placement placement);
  void add_grads(const graph::Param& logical);

  const Sources sources_;
};

LocalGraph Partitioner::run(const RuleTable& rules) {
  for (size_t i = 0; i < logical_.values().size(); ++i) {
    const ValueId id(static_cast<int32_t>(i));
    if (logical_.value(id).kind != graph::ValueKind::Result) add_source(id, sources_(id));
  }
  for (const Node& node : logical_.nodes()) {
    const auto own = rules.find(node.op);
    (own == rules.end() ? by_dims : own->second)(*this, node);
  }
  for (const graph::Param& p : logical_.params()) add_grads(p);
  if (logical_.loss.valid()) out_.graph.loss = current(logical_.loss);
  if (logical_.logits.valid()) out_.graph.logits = current(logical_.logits);
  for (graph::StepSum sum : logical_.step_sums) {
    sum.value = current(sum.value);
    out_.graph.step_sums.push_back(sum);
  }
  for (graph::BiasUpdate update : logical_.bias_updates) {
    update.bias = current(update.bias);
    update.load = current(update.load);
    out_.graph.bias_updates.push_back(update);
  }
  out_.graph.scales = logical_.scales;
  out_.graph.num_blocks = logical_.num_blocks;
  out_.graph.row_chunk = logical_.row_chunk;
  out_.divisions.resize(out_.graph.nodes().size());
  out_.once.resize(out_.graph.nodes().size());
  return std::move(out_);
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
    id = out_.graph.add_value(
        {.name = v.name, .type = std::move(local), .kind = v.kind, .producer = {}, .input = v.input});
  }
  settle(logical, id, std::move(placement));
}

// Contributions to a parameter's gradient must have the parameter's placement and be partial over the same
// atoms, so that they can be summed in place.
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
    QUINTET_CHECK(placement(local) == wanted, "gradient of {} is placed {}, expected {}",
                  logical_.value(logical.value).name,
                  to_string(placement(local), logical_.type(g), layout_.mesh),
                  to_string(wanted, logical_.type(g), layout_.mesh));
    grads.push_back(local);
  }
  out_.graph.find_param(param)->grads = std::move(grads);
}

RuleTable rule_table(const std::vector<OpRule>& extra) {
  RuleTable rules;
  for (const auto* list : {&built_in_rules(), &extra})
    for (const OpRule& r : *list) rules[r.op] = r.rule;
  return rules;
}

Placement source_of_model(const graph::Graph& logical, ValueId id, const Layout& layout,
                          const std::map<ValueId, TensorSplit>& splits) {
  const graph::Value& v = logical.value(id);
  if (v.kind == graph::ValueKind::Param) {
    const auto split = splits.find(id);
    if (split == splits.end()) return param_placement(layout, v.type);
    Placement p = replicated(v.type.num_dims());
    const int row = produced_dims(logical, id);
    for (int d = 0; d < v.type.num_dims(); ++d) {
      const bool divided =
          (split->second == TensorSplit::Column && d == 0) || (split->second == TensorSplit::Row && d == row);
      p.dims[static_cast<size_t>(d)] = split_atoms(layout, v.type.dims[static_cast<size_t>(d)].name, divided);
    }
    return p;
  }
  Placement p = replicated(v.type.num_dims());
  for (size_t d = 0; d < v.type.dims.size(); ++d)
    if (v.type.dims[d].name == Dim::Tokens) p.dims[d] = layout.data();
  if (graph::is_cache(v))
    for (size_t d = 0; d < v.type.dims.size(); ++d)
      if (v.type.dims[d].name == Dim::KvHeads) p.dims[d] = layout.atoms(Dim::KvHeads);
  return p;
}

// Every rank has summed the losses and step sums of its own rows, every pipeline stage those of its blocks.
using Placements = std::map<std::string_view, Placement>;  // of parameters, for computing
Placement source_of_step(const graph::StepGraph& step, ValueId id, const LocalGraph& train,
                         const Layout& layout, const Placements& params) {
  const graph::Type& type = step.graph.type(id);
  if (const graph::StateDecl* state = step.find(id)) {
    Placement stored = storage_of(layout, type);
    if (const auto computed = params.find(state->param); computed != params.end())
      stored.dims = computed->second.dims;
    return stored;
  }
  Placement p = replicated(type.num_dims());
  if (id == step.loss) p.partial = set_union(layout.data(), layout.pipeline);
  for (size_t i = 0; i < step.sums.size(); ++i)
    if (step.sums[i] == id)
      p.partial =
          set_union(train.placements[train.graph.step_sums[i].value.index()].partial, layout.pipeline);
  return p;
}

}  // namespace

LocalGraph partition(const graph::Graph& logical, const Layout& layout, const std::vector<OpRule>& extra) {
  const std::map<ValueId, TensorSplit> splits = tensor_splits(logical, layout);
  return Partitioner(logical, layout,
                     [&](ValueId id) { return source_of_model(logical, id, layout, splits); })
      .run(rule_table(extra));
}

LocalGraph partition_step(const graph::StepGraph& step, const LocalGraph& train, const Layout& layout,
                          const std::vector<OpRule>& extra) {
  Placements params;
  for (const graph::Param& p : train.graph.params())
    params[train.graph.value(p.value).name] = train.placements[p.value.index()];
  return Partitioner(step.graph, layout,
                     [&](ValueId id) { return source_of_step(step, id, train, layout, params); })
      .run(rule_table(extra));
}

}  // namespace quintet::layout
