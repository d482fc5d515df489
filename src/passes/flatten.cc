#include "passes/flatten.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"
#include "passes/deal_matrices.h"

namespace quintet::passes {

using graph::Node;
using graph::OpDef;
using graph::StateDecl;
using graph::StepKind;
using graph::ValueId;
using layout::FlatStep;
using layout::Group;
using layout::Segment;

namespace {

// Integers per row of the attribute "ranges": operand, first, count, and one that the op defines.
constexpr size_t kRow = 4;

class Flattener {
 public:
  Flattener(const graph::StepGraph& step, const layout::LocalGraph& local, const std::vector<Group>& groups,
            const layout::Mesh& mesh, int stage_rank)
      : step_(step), local_(local), groups_(groups), mesh_(mesh), stage_rank_(stage_rank) {}

  FlatStep run() {
    out_.graph.num_blocks = local_.graph.num_blocks;
    find_states();
    std::vector<size_t> matrices;
    for (size_t i = 0; i < nodes().size(); ++i)
      if (nodes()[i].op->elementwise())
        buckets_[key_of(nodes()[i])].push_back(i);
      else if (nodes()[i].op->step.kind == StepKind::Matrices)
        matrices.push_back(i);
    // Collectives on results of earlier bodies come first: they depend on nothing here.
    for (size_t i = 0; i < nodes().size(); ++i)
      if (is_early(nodes()[i])) copy_node(i);
    for (size_t i = 0; i < nodes().size(); ++i) {
      const Node& node = nodes()[i];
      if (is_early(node)) continue;
      const StepKind kind = node.op->step.kind;
      if (node.op->elementwise()) {
        // The merged node takes the place of the last one, where every operand has been computed.
        const std::vector<size_t>& bucket = buckets_.at(key_of(node));
        if (bucket.back() == i) merge(bucket);
      } else if (kind == StepKind::Matrices) {
        if (matrices.back() == i) deal(matrices);
      } else if (kind == StepKind::GradientNorm) {
        merge_sum(i);
      } else if (kind == StepKind::ParameterNorms) {
        merge_norms(i);
      } else {
        copy_node(i);
      }
    }
    out_.values.resize(out_.graph.values().size());
    out_.once.resize(out_.graph.nodes().size());
    return std::move(out_);
  }

 private:
  const std::vector<Node>& nodes() const { return local_.graph.nodes(); }

  // Maps every value to the state that it is a version of: the results of an update are the next versions of
  // its operands from the second on.
  void find_states() {
    decl_.assign(local_.graph.values().size(), nullptr);
    for (size_t v = 0; v < decl_.size(); ++v)
      if (local_.graph.values()[v].kind != graph::ValueKind::Result) decl_[v] = step_.find(local_.origin[v]);
    for (const Node& node : nodes())
      if (node.op->elementwise() || node.op->step.kind == StepKind::Matrices)
        for (size_t i = 0; i < node.outputs.size(); ++i)
          decl_[node.outputs[i].index()] = decl_[node.inputs[i + 1].index()];
  }
  const StateDecl* decl(ValueId v) const { return decl_[v.index()]; }

  bool is_early(const Node& node) const {
    return node.op == &graph::kAllReduce &&
           local_.graph.value(node.inputs[0]).kind != graph::ValueKind::Result;
  }

  // Nodes with equal keys are merged: the same op, attributes, scalars and slots.
  using Key = std::tuple<const OpDef*, std::string, std::vector<ValueId>, std::vector<std::string>>;
  Key key_of(const Node& node) const {
    graph::Attrs attrs;
    for (const auto& [name, value] : node.attrs.items())
      if (name != "ranges") attrs.set(name, value);
    std::vector<ValueId> scalars;
    std::vector<std::string> slots;
    for (const ValueId in : node.inputs)
      if (const StateDecl* state = decl(in))
        slots.push_back(state->slot);
      else
        scalars.push_back(in);
    return {node.op, graph::to_string(attrs), std::move(scalars), std::move(slots)};
  }

  // The current value of a group's slot.
  ValueId group_value(int group, const StateDecl& state) {
    const auto key = std::make_pair(group, state.slot);
    const auto [it, is_new] = current_.try_emplace(key);
    if (is_new) it->second = add_group_value(group, state, graph::ValueKind::State);
    return it->second;
  }
  ValueId add_group_value(int group, const StateDecl& state, graph::ValueKind kind) {
    const Group& g = groups_[static_cast<size_t>(group)];
    const ValueId v =
        out_.graph.add_value({.name = g.name + "." + state.slot,
                              .type = {state.type.dtype, {{graph::Dim::Flat, g.count / state.block}}},
                              .kind = kind});
    describe(v, group, state);
    return v;
  }
  void describe(ValueId v, int group, const StateDecl& state) {
    out_.values.resize(out_.graph.values().size());
    out_.values[v.index()] = {group, state.role, state.slot, state.type.dtype, state.block};
  }

  // A value that belongs to no group, copied unchanged.
  ValueId copy_value(ValueId v) {
    const auto [it, is_new] = copies_.try_emplace(v);
    if (is_new) {
      const graph::Value& value = local_.graph.value(v);
      QUINTET_CHECK(value.kind != graph::ValueKind::Result, "{} is used before it is computed", value.name);
      it->second = out_.graph.add_value({.name = value.name, .type = value.type, .kind = value.kind});
    }
    return it->second;
  }

  void copy_node(size_t index) {
    const Node& node = nodes()[index];
    std::vector<ValueId> in;
    for (const ValueId v : node.inputs) in.push_back(copy_value(v));
    const std::vector<ValueId> out = out_.graph
                                         .add_node_typed(*node.op, std::move(in), node.attrs, node.phase,
                                                         node.block, output_types(local_.graph, node))
                                         .outputs;
    for (size_t i = 0; i < out.size(); ++i) {
      copies_[node.outputs[i]] = out[i];
      // Results keep their names in the step graph.
      out_.graph.value(out[i]).name = node.op == &graph::kStepSums
                                          ? std::string(node.op->name)
                                          : step_.graph.value(local_.origin[node.outputs[i].index()]).name;
    }
    set_once(index < local_.once.size() ? local_.once[index] : std::vector<layout::AtomList>());
  }

  void set_once(std::vector<layout::AtomList> once) {
    out_.once.resize(out_.graph.nodes().size());
    out_.once.back() = std::move(once);
  }

  // Calls fn(group, segment) for this stage's segments of the parameters, in the groups' order.
  template <class Fn>
  void each_segment(const std::map<std::string_view, size_t>& params, const Fn& fn) const {
    for (size_t g = 0; g < groups_.size(); ++g)
      for (const Segment& s : groups_[g].segments)
        if (const auto it = params.find(s.name); it != params.end()) fn(static_cast<int>(g), s, it->second);
  }

  void merge(const std::vector<size_t>& bucket) {
    std::map<std::string_view, size_t> params;  // name -> node
    for (const size_t n : bucket) params[decl(nodes()[n].inputs[0])->param] = n;
    const Node& like = nodes()[bucket[0]];
    std::vector<ValueId> in;
    std::vector<int> groups;
    std::vector<int64_t> ranges;
    each_segment(params, [&](int group, const Segment& s, size_t n) {
      if (groups.empty() || groups.back() != group) groups.push_back(group);
      const std::vector<int64_t>& row = nodes()[n].attrs.integers("ranges");
      QUINTET_CHECK(row.size() == kRow && row[2] == s.count, "[{}] covers {} of {} elements of {}",
                    like.op->name, row[2], s.count, s.name);
      ranges.insert(ranges.end(), {static_cast<int64_t>(groups.size()) - 1, s.offset, s.count, row[3]});
    });
    if (groups.empty()) return;  // a stage without any of these parameters
    for (const int group : groups)
      for (const ValueId v : like.inputs)
        if (const StateDecl* state = decl(v)) in.push_back(group_value(group, *state));
    for (const ValueId v : like.inputs)
      if (decl(v) == nullptr) in.push_back(copy_value(v));
    std::vector<graph::Type> types;
    for (const int group : groups)
      for (const ValueId v : like.outputs)
        types.push_back({local_.graph.type(v).dtype,
                         {{graph::Dim::Flat, groups_[static_cast<size_t>(group)].count / decl(v)->block}}});
    graph::Attrs attrs = like.attrs;
    attrs.set("ranges", std::move(ranges));
    const std::vector<ValueId> out = out_.graph
                                         .add_node_typed(*like.op, std::move(in), std::move(attrs),
                                                         like.phase, like.block, std::move(types))
                                         .outputs;
    for (size_t i = 0; i < out.size(); ++i) {
      const int group = groups[i / like.outputs.size()];
      const StateDecl& state = *decl(like.outputs[i % like.outputs.size()]);
      out_.graph.value(out[i]).name = groups_[static_cast<size_t>(group)].name + "." + state.slot;
      describe(out[i], group, state);
      current_[{group, state.slot}] = out[i];
    }
    set_once({});
  }

  // Merges the updates of all matrices into one node and assigns the matrices to owners and exchange windows.
  void deal(const std::vector<size_t>& bucket) {
    merge(bucket);
    std::map<std::string_view, size_t> params;  // name -> node
    for (const size_t n : bucket) params[decl(nodes()[n].inputs[0])->param] = n;
    std::vector<MatrixParam> matrices;
    each_segment(params, [&](int group, const Segment& s, size_t n) {
      const graph::Attrs& attrs = nodes()[n].attrs;
      matrices.push_back({group, &s, static_cast<int>(attrs.integer("each")),
                          static_cast<int>(attrs.integer("rows")), attrs.real("scale"),
                          attrs.integers("ranges")[3]});
    });
    if (matrices.empty()) return;
    // The type that matmuls compute in, or f64 if masters are f64. Not f16: small directions would underflow
    // before they are divided by their norm.
    const graph::DType master = local_.graph.type(nodes()[bucket[0]].inputs[1]).dtype,
                       compute = matrices[0].segment->local.dtype;
    out_.windows = deal_matrices(matrices, groups_, mesh_,
                                 master == graph::DType::F64     ? master
                                 : compute == graph::DType::BF16 ? compute
                                                                 : graph::DType::F32);
  }

  // A sum over the parameters of this stage; other stages hold the remaining terms. A group shared by several
  // stages is counted by the first, but is an operand on all, so that ranks of a class have equal programs.
  void merge_sum(size_t index) {
    const Node& node = nodes()[index];
    std::map<std::string_view, size_t> params;  // name -> operand
    for (size_t i = 0; i < node.inputs.size(); ++i) params[decl(node.inputs[i])->param] = i;
    std::vector<ValueId> in;
    std::vector<int64_t> ranges;
    std::vector<layout::AtomList> once;
    int last = -1;
    each_segment(params, [&](int group, const Segment& s, size_t operand) {
      if (group != last) in.push_back(group_value(group, *decl(node.inputs[operand])));
      last = group;
      const std::vector<int>& shared_by = groups_[static_cast<size_t>(group)].shared_by;
      if (!shared_by.empty() && shared_by.front() != stage_rank_) return;
      ranges.insert(ranges.end(), {static_cast<int64_t>(in.size()) - 1, s.offset, s.count, 0});
      once.push_back(local_.once[index][operand]);
    });
    graph::Attrs attrs = node.attrs;
    attrs.set("ranges", std::move(ranges));
    const ValueId out = out_.graph
                            .add_node_typed(*node.op, std::move(in), std::move(attrs), node.phase, node.block,
                                            output_types(local_.graph, node))
                            .outputs[0];
    copies_[node.outputs[0]] = out;
    out_.graph.value(out).name = step_.graph.value(local_.origin[node.outputs[0].index()]).name;
    set_once(std::move(once));
  }

  // The same for one pair of sums per parameter.
  void merge_norms(size_t index) {
    const Node& node = nodes()[index];
    const std::vector<int64_t>& rows = node.attrs.integers("ranges");
    size_t states = 0;
    while (states < node.inputs.size() && decl(node.inputs[states]) != nullptr) ++states;
    const size_t each = states * kRow / rows.size();
    std::map<std::string_view, size_t> params;  // name -> first operand
    for (size_t i = 0; i < states; i += each) params[decl(node.inputs[i])->param] = i;
    std::vector<ValueId> in;
    std::vector<int64_t> ranges;
    std::vector<layout::AtomList> once;
    int last = -1;
    int64_t count = 0;
    each_segment(params, [&](int group, const Segment& s, size_t operand) {
      if (group != last) {
        for (size_t i = 0; i < each; ++i) in.push_back(group_value(group, *decl(node.inputs[operand + i])));
        ++count;
      }
      last = group;
      const std::vector<int>& shared_by = groups_[static_cast<size_t>(group)].shared_by;
      if (!shared_by.empty() && shared_by.front() != stage_rank_) return;
      ranges.insert(ranges.end(), {count - 1, s.offset, s.count, rows[operand / each * kRow + 3]});
      once.push_back(local_.once[index][operand]);
    });
    for (size_t i = states; i < node.inputs.size(); ++i) in.push_back(copy_value(node.inputs[i]));
    graph::Attrs attrs = node.attrs;
    attrs.set("ranges", std::move(ranges));
    const ValueId out = out_.graph
                            .add_node_typed(*node.op, std::move(in), std::move(attrs), node.phase, node.block,
                                            output_types(local_.graph, node))
                            .outputs[0];
    copies_[node.outputs[0]] = out;
    out_.graph.value(out).name = step_.graph.value(local_.origin[node.outputs[0].index()]).name;
    set_once(std::move(once));
  }

  const graph::StepGraph& step_;
  const layout::LocalGraph& local_;
  const std::vector<Group>& groups_;
  const layout::Mesh& mesh_;
  const int stage_rank_;
  FlatStep out_;
  std::vector<const StateDecl*> decl_;  // by local value: the state that it is a version of
  std::map<Key, std::vector<size_t>> buckets_;
  std::map<std::pair<int, std::string>, ValueId> current_;  // (group, slot) -> its latest version
  std::map<ValueId, ValueId> copies_;                       // local -> flat, for values outside groups
};

}  // namespace

FlatStep flatten(const graph::StepGraph& step, const layout::LocalGraph& local,
                 const std::vector<Group>& groups, const layout::Mesh& mesh, int stage_rank) {
  return Flattener(step, local, groups, mesh, stage_rank).run();
}

}  // namespace quintet::passes
