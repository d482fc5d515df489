#include <algorithm>

#include "program/lowering.h"

namespace quintet::program {

using graph::DType;
using layout::AtomList;

namespace {

// The parts of a group's segments that lie in this rank's range, relative to its start: (first, count) pairs,
// or (first, count, decay) triples for the update.
std::vector<int64_t> ranges_of(const layout::Group& g, const GroupState& st, bool with_decay,
                               const std::function<bool(const layout::Segment&)>& take) {
  std::vector<int64_t> out;
  for (const layout::Segment& s : g.segments) {
    if (!take(s)) continue;
    const int64_t begin = std::max(s.offset, st.first),
                  end = std::min(s.offset + s.count, st.first + st.count);
    if (begin >= end) continue;
    out.push_back(begin - st.first);
    out.push_back(end - begin);
    if (with_decay) out.push_back(s.decay);
  }
  return out;
}

}  // namespace

namespace {

void set_to_zero(Emitter& e, Scalar scalar) {
  e.emit({.op = &graph::kZeroUnlessFirst,
          .attrs = {{"keep", int64_t{0}}},
          .in = {e.scalar(scalar)},
          .out = {e.scalar(scalar)}});
}

// Only the last stage has losses to add; the sum over stages needs zeros from the others.
void zero_loss(Emitter& e) {
  if (!e.layout().pipeline.empty()) set_to_zero(e, Scalar::Loss);
}

void sum_losses(Emitter& e) {
  e.all_reduce(e.scalar(Scalar::Loss), layout::set_union(e.layout().pipeline, e.layout().data()),
               graph::Reduction::Sum, {.note = "sum losses"});
}

}  // namespace

void lower_begin(Emitter& e) {
  e.begin(BodyKind::Begin);
  zero_loss(e);
  e.all_reduce(e.scalar(Scalar::Count), e.layout().data(), graph::Reduction::Sum, {.note = "count tokens"});
  e.emit({.op = &graph::kCountToSeed, .in = {e.scalar(Scalar::Count)}, .out = {e.scalar(Scalar::Seed)}});
}

void lower_evaluate_begin(Emitter& e) {
  e.begin(BodyKind::Begin);
  zero_loss(e);
}

void lower_evaluate_end(Emitter& e) {
  e.begin(BodyKind::EvaluateEnd);
  e.all_reduce(e.scalar(Scalar::Count), e.layout().data(), graph::Reduction::Sum, {.note = "count tokens"});
  sum_losses(e);
}

void lower_step(Emitter& e, GroupLowering& groups) {
  const layout::Layout& layout = e.layout();
  const LowerOptions& o = e.options();
  e.begin(BodyKind::Step);
  sum_losses(e);

  // The norm counts every element once: a rank adds the squares of what it holds, and of what it holds
  // together with others (replicated over an axis) only the first of them does.
  AtomList summed = layout.shard;
  for (int a = 0; a < layout.mesh.num_atoms(); ++a)
    if (layout.mesh.atom(a).size > 1 && !layout::contains(layout.data(), a))
      summed = layout::set_union(summed, AtomList{a});
  bool first = true;
  for (size_t i = 0; i < groups.groups().size(); ++i) {
    const layout::Group& g = groups.groups()[i];
    if (!g.trainable) continue;
    const GroupState& st = e.program().groups[i];
    const bool counts = g.shared_by.empty() || g.shared_by.front() == e.stage_rank();
    e.emit({.op = &graph::kSumSquares,
            .attrs = {{"ranges", ranges_of(g, st, false,
                                           [&](const layout::Segment& s) {
                                             return counts && layout.mesh.is_first(o.rank, s.replicated);
                                           })}},
            .in = {groups.reduced_grad(static_cast<int>(i))},
            .out = {e.scalar(Scalar::SumSquares)},
            .accumulate = first ? Accumulate::Never : Accumulate::Always,
            .block = g.block});
    first = false;
  }
  if (first) set_to_zero(e, Scalar::SumSquares);  // a stage without blocks, or with frozen ones only
  e.all_reduce(e.scalar(Scalar::SumSquares), summed, graph::Reduction::Sum, {.note = "gradient norm"});
  const Operand scalars{e.program().scalars, 0, {DType::F64, {{graph::Dim::Flat, kNumScalars}}}};
  e.emit({.op = &graph::kClipScale,
          .attrs = {{"max_norm", o.update.clip_norm}},
          .in = {scalars},
          .out = {scalars}});

  for (size_t i = 0; i < groups.groups().size(); ++i) {
    const layout::Group& g = groups.groups()[i];
    if (!g.trainable) continue;
    const GroupState& st = e.program().groups[i];
    Instr update{.op = o.update.op, .attrs = o.update.attrs, .block = g.block, .note = "update " + g.name};
    update.attrs.set("ranges", ranges_of(g, st, true, [](const layout::Segment&) { return true; }));
    update.in = {groups.reduced_grad(static_cast<int>(i)), scalars};
    Operand master = flat_view(st.master, 0, st.count, o.master);
    master.offset_bytes = st.master_offset_bytes;
    update.out = {master};
    if (st.moment1.valid()) update.out.push_back(flat_view(st.moment1, 0, st.count, o.moments));
    if (st.moment2.valid()) update.out.push_back(flat_view(st.moment2, 0, st.count, o.moments));
    if (const Operand copy = groups.updated_copy(static_cast<int>(i)); copy.buffer.valid())
      update.out.push_back(copy);
    e.emit(std::move(update));
  }
}

}  // namespace quintet::program
