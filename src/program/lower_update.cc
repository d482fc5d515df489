// Lowers a flat step graph (layout/flat_step.h) to the Step body over the buffers of this rank.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/philox.h"
#include "graph/fp8_ops.h"
#include "graph/words.h"
#include "program/flat_ranges.h"
#include "program/lowering.h"

namespace quintet::program {

using graph::DType;
using graph::Node;
using graph::StepKind;
using graph::ValueId;
using layout::AtomList;

namespace {

// A rank's part of a parameter as runs of consecutive elements of the whole: its element i is element
// base + i / run x stride + i % run of the parameter, not counting padding.
struct Runs {
  int64_t run = 1, stride = 1, base = 0;
};

Runs runs_of(const layout::GlobalIndex& part) {
  const std::vector<int64_t>&local = part.local_sizes(), &global = part.global_sizes();
  size_t d = local.size();
  const auto skip_undivided = [&] {
    int64_t count = 1;
    for (; d > 0 && local[d - 1] == global[d - 1]; --d) count *= local[d - 1];
    return count;
  };
  const int64_t inner = skip_undivided();
  if (d == 0) return {inner, inner, 0};
  --d;
  Runs runs{local[d] * inner, global[d] * inner, part.begins()[d] * inner};
  const int64_t rows = skip_undivided();
  if (d == 0) return runs;
  // A second divided dim only shifts the base: dims between the two are whole, dims before it have size 1.
  --d;
  runs.base += part.begins()[d] * rows * runs.stride;
  for (size_t outer = 0; outer < d; ++outer)
    QUINTET_CHECK(local[outer] == 1, "a parameter is divided along dim {} and along two later ones", outer);
  return runs;
}

class StepLowering {
 public:
  StepLowering(Emitter& e, GroupLowering& groups, const layout::FlatStep& step)
      : e_(e), groups_(groups), step_(step), graph_(step.graph) {}

  void run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (node.op == &graph::kAllReduce)
        all_reduce(node);
      else if (node.op == &graph::kStepSums)
        step_sums(i);
      else if (node.op->step.kind == StepKind::GradientNorm)
        norm_terms(i);
      else if (node.op->step.kind == StepKind::ParameterNorms)
        parameter_norms(i);
      else if (node.op->elementwise())
        update(i);
      else if (node.op->step.kind == StepKind::Matrices)
        update_matrices(i);
      else if (node.op != &graph::kView && node.op != &graph::kStepMaxima)  // operands, not instructions
        compute(node);
    }
  }

 private:
  // The operand of a value that belongs to no group.
  Operand place(ValueId id) const {
    const graph::Value& v = graph_.value(id);
    if (v.type.dims.empty()) return e_.scalar(v.name);
    if (const StatePlace* state = find_state(v.name)) return state->place;
    const Node* const producer = v.producer.valid() ? &graph_.nodes()[v.producer.index()] : nullptr;
    if (const auto norms = norms_.find(id); norms != norms_.end())
      return flat_view(norms->second, 0, v.type.count(), DType::F64);
    if (producer && producer->op == &graph::kView)
      return flat_view(e_.program().sums, producer->attrs.integer("first"), v.type.count(), DType::F64);
    if (producer && producer->op == &graph::kStepSums)
      return flat_view(e_.program().sums, 0, v.type.count(), DType::F64);
    if (producer && producer->op == &graph::kStepMaxima)  // the last of the sums
      return flat_view(e_.program().sums, sums_count() - v.type.count(), v.type.count(), DType::F64);
    if (producer && producer->op == &graph::kAllReduce) return place(producer->inputs[0]);
    base::fail_internal("no buffer for {} of the step", v.name);
  }
  int64_t sums_count() const {
    return e_.program().step_sums.back().first + e_.program().step_sums.back().count;
  }
  const StatePlace* find_state(std::string_view name) const {
    for (const StatePlace& state : e_.program().states)
      if (state.name == name) return &state;
    return nullptr;
  }

  // A result that is computed in place of norms of parameters, or of what became of them, has their buffer.
  void share_norms(ValueId result, ValueId operand) {
    if (const auto norms = norms_.find(operand); norms != norms_.end()) norms_[result] = norms->second;
  }

  void all_reduce(const Node& node) {
    const auto& atoms = node.attrs.integers("atoms");
    const auto reduction = graph::choice<graph::Reduction>(node.attrs);
    e_.all_reduce(
        place(node.inputs[0]), AtomList(atoms.begin(), atoms.end()), reduction,
        {.note = (reduction == graph::Reduction::Max ? "max " : "sum ") + graph_.value(node.inputs[0]).name},
        Traffic::State);
    share_norms(node.outputs[0], node.inputs[0]);
  }

  // The sums share one buffer already; those that this rank must not count are cleared before the reduction.
  // Ranks that do count them have the instruction, too, so that ranks of a class have equal programs.
  void step_sums(size_t index) {
    for (size_t i = 0; i < graph_.nodes()[index].inputs.size(); ++i) {
      const SumPlace& sum = e_.program().step_sums[i];
      e_.zero(flat_view(e_.program().sums, sum.first, sum.count, DType::F64), counts(step_.once[index][i]));
    }
  }

  bool counts(const AtomList& once) const { return e_.mesh().is_first(e_.rank(), once); }

  // The rows of the range table that this rank counts, clipped to its range of each group and relative to the
  // start of that range. Adjacent ranges merge, unless `origins` is to receive the origin of each.
  std::vector<FlatRange> ranges_of(size_t index, const std::vector<int>& groups,
                                   std::vector<int64_t>* origins = nullptr) const {
    const std::vector<AtomList>& once = step_.once[index];
    std::vector<FlatRange> ranges;
    size_t row = 0;
    for (const FlatRange& r : flat_ranges(graph_.nodes()[index].attrs)) {
      const size_t at = row++;
      if (!once.empty() && !counts(once[at])) continue;
      const int group = groups[static_cast<size_t>(r.operand)];
      const auto [first, count] = groups_.own_range(group);
      const int64_t begin = std::max(r.first, first) - first,
                    end = std::min(r.first + r.count, first + count) - first;
      if (begin >= end) continue;
      FlatRange* const last = ranges.empty() ? nullptr : &ranges.back();
      if (!origins && last && last->operand == r.operand && last->first + last->count == begin &&
          last->row == r.row)
        last->count = end - last->first;
      else
        ranges.push_back({r.operand, begin, end - begin, r.row});
      if (origins) add_origin(*origins, graph_.nodes()[index], group, r.first, begin + first - r.first);
    }
    return ranges;
  }

  // kernels::Origin of a range that begins at element `first` of the segment at `offset`.
  void add_origin(std::vector<int64_t>& origins, const Node& node, int group, int64_t offset,
                  int64_t first) const {
    for (const layout::Segment& s : groups_.groups()[static_cast<size_t>(group)].segments) {
      if (s.offset != offset) continue;
      const bool random = node.attrs.find("seed") != nullptr;
      const uint64_t key =
          random ? base::stream_key(static_cast<uint64_t>(node.attrs.integer("seed")), "moments of " + s.name)
                 : 0;
      const Runs runs = runs_of(layout::GlobalIndex(s, e_.mesh(), e_.rank()));
      origins.insert(origins.end(), {static_cast<int64_t>(key), first, runs.run, runs.stride, runs.base});
      return;
    }
    base::fail_internal("no parameter begins at element {} of its group", offset);
  }

  int group_of(ValueId v) const { return step_.values[v.index()].group; }

  void norm_terms(size_t index) {
    const Node& node = graph_.nodes()[index];
    if (node.inputs.empty()) return e_.zero(place(node.outputs[0]));  // a stage without trained parameters
    Instr instr{.op = node.op};
    std::vector<int> groups;
    for (const ValueId in : node.inputs) {
      groups.push_back(group_of(in));
      for (const Operand& o : groups_.operands(step_.values[in.index()])) instr.in.push_back(o);
    }
    instr.attrs = {{"ranges", to_attribute(ranges_of(index, groups))}};
    instr.out = {place(node.outputs[0])};
    e_.emit(std::move(instr));
  }

  // Operands are ordered by group; the update's scalars come last. A stage without such parameters has only
  // the scalars, and its norms are zeros.
  void parameter_norms(size_t index) {
    const Node& node = graph_.nodes()[index];
    const graph::Value& result = graph_.value(node.outputs[0]);
    norms_[node.outputs[0]] =
        e_.add_buffer(result.name, result.type.bytes(), MemoryClass::Optimizer, Scope::Body);
    Instr instr{.op = node.op, .attrs = node.attrs, .note = "norms of parameters"};
    std::vector<int> groups;
    for (const ValueId in : node.inputs) {
      const int group = group_of(in);
      if (group >= 0 && (groups.empty() || groups.back() != group)) groups.push_back(group);
      if (group < 0)
        instr.in.push_back(place(in));
      else
        for (const Operand& o : groups_.operands(step_.values[in.index()])) instr.in.push_back(o);
    }
    set_ranges(instr, index, groups);
    instr.out = {place(node.outputs[0])};
    e_.emit(std::move(instr));
  }

  // Ranges, and where in their parameters they begin for ops that depend on it.
  void set_ranges(Instr& instr, size_t index, const std::vector<int>& groups) const {
    std::vector<int64_t> origins;
    const bool located = has_origins(instr);
    instr.attrs.set("ranges", to_attribute(ranges_of(index, groups, located ? &origins : nullptr)));
    if (located) instr.attrs.set("origins", std::move(origins));
  }

  // One instruction for all groups, which keeps GPU launches few. Its inputs are operand 0 of every group,
  // then the scalars; updated values are read and written in place.
  void update(size_t index) {
    const Node& node = graph_.nodes()[index];
    Instr instr{.op = node.op, .attrs = node.attrs, .note = "update"};
    std::vector<int> groups;
    std::vector<Operand> scalars;
    for (const ValueId in : node.inputs) {
      const int group = group_of(in);
      if (group < 0) scalars.push_back(place(in));
      if (group < 0 || (!groups.empty() && groups.back() == group)) continue;
      groups.push_back(group);
      for (const Operand& o : groups_.operands(step_.values[in.index()])) instr.in.push_back(o);
    }
    instr.in.insert(instr.in.end(), scalars.begin(), scalars.end());
    for (const ValueId out : node.outputs)
      for (const Operand& o : groups_.operands(step_.values[out.index()])) instr.out.push_back(o);
    set_ranges(instr, index, groups);
    e_.emit(std::move(instr));
  }

  // Momentum is updated in its storage, all groups at once; the rest follows window by window.
  void update_matrices(size_t index) {
    const Node& node = graph_.nodes()[index];
    MatrixUpdate update{.attrs = node.attrs, .groups = {}};
    std::vector<int> groups;
    const auto add = [&](ValueId v, bool result) {
      const layout::FlatValue& value = step_.values[v.index()];
      if (value.group < 0) return;
      MatrixUpdate::Group& group = update.groups[value.group];
      const std::vector<Operand> operands = groups_.operands(value);
      if (value.role == graph::Role::Moment)
        group.momentum = operands.front();
      else if (value.role == graph::Role::Gradient)
        group.gradient = operands.front();
      else if (result)
        group.weights.insert(group.weights.end(), operands.begin(), operands.end());
      if (groups.empty() || groups.back() != value.group) groups.push_back(value.group);
    };
    for (const ValueId in : node.inputs) add(in, false);
    const std::vector<int> in_order = groups;
    for (const ValueId out : node.outputs) add(out, true);
    Instr momentum{
        .op = &graph::kMuonMomentum, .attrs = {{"momentum", node.attrs.real("momentum")}}, .note = "update"};
    if (node.attrs.find("seed") != nullptr) momentum.attrs.set("seed", node.attrs.integer("seed"));
    set_ranges(momentum, index, in_order);
    std::vector<FlatRange> ranges = flat_ranges(momentum);
    for (FlatRange& r : ranges) r.row = 0;  // momentum uses neither lr nor weight decay
    momentum.attrs.set("ranges", to_attribute(ranges));
    for (const int group : in_order) {
      momentum.in.push_back(update.groups.at(group).gradient);
      momentum.out.push_back(update.groups.at(group).momentum);
    }
    for (const std::string_view name : kUpdateScalars) momentum.in.push_back(e_.scalar(name));
    e_.emit(std::move(momentum));
    lower_matrices(e_, groups_, update, step_.windows);
  }

  void compute(const Node& node) {
    for (const auto& [out, in] : node.op->in_place)
      share_norms(node.outputs[static_cast<size_t>(out)], node.inputs[static_cast<size_t>(in)]);
    Instr instr{.op = node.op, .attrs = node.attrs};
    for (const ValueId in : node.inputs) instr.in.push_back(place(in));
    for (const ValueId out : node.outputs) instr.out.push_back(place(out));
    if (const graph::Value& first = graph_.value(node.outputs[0]); !first.type.dims.empty()) {
      instr.block = node.block;
      instr.note = "update " + first.name;
    }
    e_.emit(std::move(instr));
  }

  Emitter& e_;
  GroupLowering& groups_;
  const layout::FlatStep& step_;
  const graph::Graph& graph_;
  std::map<ValueId, BufferId> norms_;  // of parameters, and what is computed in their place
};

}  // namespace

void lower_update(Emitter& e, GroupLowering& groups, const layout::FlatStep& step) {
  e.begin(BodyKind::Step);
  StepLowering(e, groups, step).run();
}

}  // namespace quintet::program
