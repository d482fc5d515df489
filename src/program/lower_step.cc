#include <algorithm>

#include "program/flat_ranges.h"
#include "program/lowering.h"

namespace quintet::program {

using graph::DType;
using layout::AtomList;

namespace {

// Adds the parts of a group's segments that lie in this rank's range, relative to its start. Neighbours
// become one range.
void add_ranges(std::vector<FlatRange>& ranges, int64_t operand, const layout::Group& g, const GroupState& st,
                bool with_decay, const std::function<bool(const layout::Segment&)>& take) {
  for (const layout::Segment& s : g.segments) {
    if (!take(s)) continue;
    const int64_t begin = std::max(s.offset, st.first) - st.first,
                  end = std::min(s.offset + s.count, st.first + st.count) - st.first;
    if (begin >= end) continue;
    const bool decay = with_decay && s.decay;
    FlatRange* const last = ranges.empty() ? nullptr : &ranges.back();
    if (last && last->operand == operand && last->first + last->count == begin && last->decay == decay)
      last->count = end - last->first;
    else
      ranges.push_back({operand, begin, end - begin, decay});
  }
}

void set_to_zero(Emitter& e, std::string_view scalar) {
  e.emit({.op = &graph::kZeroUnlessFirst,
          .attrs = {{"keep", int64_t{0}}},
          .in = {e.scalar(scalar)},
          .out = {e.scalar(scalar)}});
}

// Only the last stage has losses to add; the sum over stages needs zeros from the others.
void zero_loss(Emitter& e) {
  if (!e.layout().pipeline.empty()) set_to_zero(e, scalars::kLoss);
}

void sum_losses(Emitter& e) {
  e.all_reduce(e.scalar(scalars::kLoss), layout::set_union(e.layout().pipeline, e.layout().data()),
               graph::Reduction::Sum, {.note = "sum loss"}, Traffic::State);
}

Operand all_sums(Emitter& e) {
  const SumPlace& last = e.program().step_sums.back();
  return flat_view(e.program().sums, 0, last.first + last.count, DType::F64);
}

// Step sums over all ranks, in one message. A sum that is complete already on several ranks counts once.
void reduce_step_sums(Emitter& e, const layout::LocalGraph& local) {
  if (!e.program().sums.valid()) return;
  const layout::Layout& layout = e.layout();
  const AtomList ranks = layout::without(layout.everything(), layout.pipeline);
  for (size_t i = 0; i < local.graph.step_sums.size(); ++i) {
    const layout::Placement& p = local.placements[local.graph.step_sums[i].value.index()];
    if (layout.mesh.is_first(e.rank(), layout::without(ranks, p.partial))) continue;
    const SumPlace& sum = e.program().step_sums[i];
    const Operand view = flat_view(e.program().sums, sum.first, sum.count, DType::F64);
    e.emit({.op = &graph::kZeroUnlessFirst, .attrs = {{"keep", int64_t{0}}}, .in = {view}, .out = {view}});
  }
  e.all_reduce(all_sums(e), layout.everything(), graph::Reduction::Sum, {.note = "sum step_sums"},
               Traffic::State);
}

void update_biases(Emitter& e, const layout::LocalGraph& local) {
  const graph::Graph& graph = local.graph;
  for (const graph::BiasUpdate& update : graph.bias_updates) {
    size_t load = 0;
    while (graph.step_sums[load].value != update.load) ++load;
    const SumPlace& sum = e.program().step_sums[load];
    const graph::Value& bias = graph.value(update.bias);
    for (const StatePlace& state : e.program().states)
      if (state.name == bias.name) {
        const Operand& view = state.place;
        e.emit({.op = &graph::kUpdateBias,
                .attrs = {{"rate", update.rate}},
                .in = {flat_view(e.program().sums, sum.first, sum.count, DType::F64), e.scalar(scalars::kOk),
                       view},
                .out = {view},
                .block = sum.block,
                .note = "update " + bias.name});
      }
  }
}

// One instruction for all groups, so that a GPU has few launches.
void update_groups(Emitter& e, GroupLowering& groups) {
  const LowerOptions& o = e.options();
  Instr update{.op = o.update.op, .attrs = o.update.attrs, .note = "update"};
  std::vector<FlatRange> ranges;
  for (size_t i = 0; i < groups.groups().size(); ++i) {
    const layout::Group& g = groups.groups()[i];
    if (!g.trainable) continue;
    const GroupState& st = e.program().groups[i];
    const int group = static_cast<int>(i);
    add_ranges(ranges, static_cast<int64_t>(update.in.size()), g, st, true,
               [](const layout::Segment&) { return true; });
    update.in.push_back(groups.reduced_grad(group));
    Operand master = flat_view(st.master, 0, st.count, o.split_master ? o.compute : o.master);
    master.offset_bytes = st.master_offset_bytes;
    update.out.push_back(master);
    if (o.split_master) update.out.push_back(flat_view(st.remainder, 0, st.count, DType::I16));
    if (st.moment1.valid()) update.out.push_back(flat_view(st.moment1, 0, st.count, o.moments));
    if (st.moment2.valid()) update.out.push_back(flat_view(st.moment2, 0, st.count, o.moments));
    if (const Operand copy = groups.updated_copy(group); copy.buffer.valid()) update.out.push_back(copy);
  }
  if (update.in.empty()) return;  // a stage without blocks, or with frozen ones only
  update.attrs.set("ranges", to_attribute(ranges));
  for (const std::string_view scalar : kUpdateScalars) update.in.push_back(e.scalar(scalar));
  e.emit(std::move(update));
}

}  // namespace

void lower_begin(Emitter& e) {
  e.begin(BodyKind::Begin);
  zero_loss(e);
  if (e.program().sums.valid()) {
    const Operand sums = all_sums(e);
    e.emit({.op = &graph::kZeroUnlessFirst, .attrs = {{"keep", int64_t{0}}}, .in = {sums}, .out = {sums}});
  }
  e.all_reduce(e.scalar(scalars::kCount), e.layout().data(), graph::Reduction::Sum, {.note = "count tokens"},
               Traffic::State);
  e.emit({.op = &graph::kCountToSeed,
          .in = {e.scalar(scalars::kCount), e.scalar(scalars::kLossScale)},
          .out = {e.scalar(scalars::kSeed)}});
}

void lower_evaluate_begin(Emitter& e) {
  e.begin(BodyKind::Begin);
  zero_loss(e);
}

void lower_evaluate_end(Emitter& e) {
  e.begin(BodyKind::EvaluateEnd);
  e.all_reduce(e.scalar(scalars::kCount), e.layout().data(), graph::Reduction::Sum, {.note = "count tokens"},
               Traffic::State);
  sum_losses(e);
}

void lower_step(Emitter& e, GroupLowering& groups, const layout::LocalGraph& local) {
  const layout::Layout& layout = e.layout();
  const LowerOptions& o = e.options();
  e.begin(BodyKind::Step);
  sum_losses(e);
  reduce_step_sums(e, local);

  // The norm counts every element once: of the ranks that hold the same elements only the first adds their
  // squares. Ranks that hold the same of everything need not meet.
  const auto copies = [](const layout::DataAtoms& data) { return layout::without(data.all, data.shard); };
  const AtomList summed =
      layout::without(layout.everything(), layout::intersection(copies(layout.dense), copies(layout.expert)));
  std::vector<FlatRange> squared;
  std::vector<Operand> gradients;  // also those of which this rank counts nothing: ranks of a stage are alike
  for (size_t i = 0; i < groups.groups().size(); ++i) {
    const layout::Group& g = groups.groups()[i];
    if (!g.trainable) continue;
    const bool counts = g.shared_by.empty() || g.shared_by.front() == e.stage_rank();
    add_ranges(squared, static_cast<int64_t>(gradients.size()), g, e.program().groups[i], false,
               [&](const layout::Segment& s) {
                 return counts && layout.mesh.is_first(
                                      o.rank, layout::intersection(g.replicas(s, layout.zero), summed));
               });
    gradients.push_back(groups.reduced_grad(static_cast<int>(i)));
  }
  if (gradients.empty())  // a stage without blocks, or with frozen ones only
    set_to_zero(e, scalars::kSumSquares);
  else
    e.emit({.op = &graph::kSumSquares,
            .attrs = {{"ranges", to_attribute(squared)}},
            .in = gradients,
            .out = {e.scalar(scalars::kSumSquares)}});
  e.all_reduce(e.scalar(scalars::kSumSquares), summed, graph::Reduction::Sum, {.note = "sum sum_squares"},
               Traffic::State);
  const auto of = [&](std::initializer_list<std::string_view> names) {
    std::vector<Operand> list;
    for (const std::string_view name : names) list.push_back(e.scalar(name));
    return list;
  };
  namespace s = scalars;
  e.emit({.op = &graph::kClipScale,
          .attrs = {{"max_norm", o.update.clip_norm}, {"window", o.update.loss_scale_window}},
          .in = of({s::kSumSquares, s::kLoss, s::kLossScale, s::kUpdateCount, s::kSkippedInRow,
                    s::kSkippedTotal, s::kGoodSteps}),
          .out = of({s::kNorm, s::kClipScale, s::kOk, s::kLossScale, s::kUpdateCount, s::kSkippedInRow,
                     s::kSkippedTotal, s::kGoodSteps})});

  update_groups(e, groups);
  update_biases(e, local);
}

}  // namespace quintet::program
