#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "layout/saved_share.h"
#include "layout/state_table.h"
#include "program/lowering.h"

namespace quintet::program {

using graph::DType;
using layout::AtomList;
using layout::Group;
using layout::Segment;

namespace {

int64_t size_bytes(int64_t count, DType dtype) { return count * base::size_of(dtype); }

}  // namespace

GroupLowering::GroupLowering(Emitter& emitter, const std::vector<Group>& groups,
                             const std::vector<graph::StateDecl>& states)
    : emitter_(emitter), groups_(groups), storage_(groups.size()) {
  const layout::Layout& layout = emitter.layout();
  const LowerOptions& o = emitter.options();
  const std::vector<layout::StateRows> table = layout::state_table(states, groups);
  // Gradients of a single micro-batch exist only from its backward pass on: they reuse bytes of activations
  // that are dead by then.
  const Scope grad_scope = o.accumulation == 1 && layout.pipeline.empty() ? Scope::Step : Scope::Persistent;

  for (size_t i = 0; i < groups.size(); ++i) {
    const Group& g = groups[i];
    for (const Segment& s : g.segments) by_name_[s.name] = {static_cast<int>(i), &s};
    Storage& own = storage_[i];
    std::tie(own.first, own.count) = range_of(static_cast<int>(i), o.rank);
    const int shards = layout.mesh.size(g.data.shard);
    for (const layout::StateRow& row : table[i]) {
      const layout::GroupStorage at{.elements = g.count, .shards = shards, .zero = layout.zero};
      const bool gradient = row.role == graph::Role::Gradient, split = row.encoding == graph::Encoding::Split;
      GroupSlot slot{.group = static_cast<int>(i),
                     .role = row.role,
                     .keep = row.keep,
                     .slot = row.slot,
                     .dtype = row.dtype,
                     .first = own.first,
                     .count = own.count,
                     .block = row.block};
      slot.buffer = emitter.add_buffer(fmt::format("{}.{}", g.name, split ? "remainder" : row.slot),
                                       layout::local_bytes(row, at), memory_class_of(row.role),
                                       gradient ? grad_scope : Scope::Persistent);
      // The buffer holds the whole group or the rank's own range.
      if (!layout::is_divided(row.role, layout.zero)) slot.offset_bytes = size_bytes(own.first, row.stored);
      if (row.role == graph::Role::Weight) own.param = slot.buffer;
      if (gradient) own.grad = slot.buffer;
      if (split) {  // the weight has the upper halves
        slot.lower = slot.buffer;
        slot.buffer = own.param;
        const bool whole = !layout::is_divided(graph::Role::Weight, layout.zero);
        slot.offset_bytes = whole ? size_bytes(own.first, o.compute) : 0;
      }
      emitter.program().slots.push_back(std::move(slot));
    }
  }
}

std::pair<int, const Segment*> GroupLowering::find(const std::string& param) const {
  const auto it = by_name_.find(param);
  return it == by_name_.end() ? std::pair<int, const Segment*>{-1, nullptr} : it->second;
}

std::pair<int64_t, int64_t> GroupLowering::range_of(int group, RankId rank) const {
  const auto [first, count] = layout::own_range(groups_[static_cast<size_t>(group)], emitter_.layout(), rank);
  return {first, count};
}

bool GroupLowering::gathered(int group) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  return !g.data.shard.empty() && (emitter_.layout().zero == 3 || g.trainable);
}

void GroupLowering::begin_pass(const std::vector<Use>& uses, bool forward,
                               std::vector<char> wanted_in_backward) {
  const layout::Layout& layout = emitter_.layout();
  forward_ = forward;
  wanted_in_backward_ = std::move(wanted_in_backward);
  wanted_in_backward_.resize(groups_.size(), 0);
  runs_.clear();
  std::vector<char> seen(groups_.size(), 0);
  for (const Use& use : uses) {
    if (!gathered(use.group)) continue;
    if (layout.zero < 3) {  // gathered in place, once a step, in its first forward pass
      if (!forward || seen[static_cast<size_t>(use.group)]) continue;
      seen[static_cast<size_t>(use.group)] = 1;
    }
    const auto same = std::find_if(runs_.begin(), runs_.end(), [&](const Run& r) {
      return r.group == use.group && r.block == use.block;
    });
    if (same != runs_.end()) {
      same->last = use.node;
    } else {
      runs_.push_back({use.group, use.block, use.node, use.node, 0, BufferId()});
    }
  }
  // A gather is issued when the run `prefetch` runs earlier begins.
  for (size_t i = 0; i < runs_.size(); ++i) {
    const size_t ahead = static_cast<size_t>(layout.prefetch);
    runs_[i].issue = runs_[i >= ahead ? i - ahead : 0].first;
  }
}

void GroupLowering::before_node(int node) {
  for (Run& run : runs_)
    if (run.issue == node) gather(run);
}

void GroupLowering::gather(Run& run) {
  const layout::Layout& layout = emitter_.layout();
  const Group& g = groups_[static_cast<size_t>(run.group)];
  const DType dtype = emitter_.options().compute;
  const Storage& st = this->storage(run.group);
  Instr like{
      .phase = forward_ ? graph::Phase::F : graph::Phase::B, .block = run.block, .note = "gather " + g.name};
  if (layout.zero < 3) {
    like.when = When::FirstCall;
    const int64_t range = g.shard_count(layout.mesh.size(g.data.shard));
    const int64_t first = layout.mesh.index(emitter_.rank(), g.data.shard) * range;
    emitter_.all_gather(flat_view(st.param, first, range, dtype), flat_view(st.param, 0, g.count, dtype),
                        g.data.shard, like, Traffic::State);
    return;
  }
  Storage& storage = storage_[static_cast<size_t>(run.group)];
  if (!forward_ && storage.kept.valid() && !storage.kept_slice) {
    run.gathered = storage.kept;
    return;
  }
  run.gathered = emitter_.add_buffer(fmt::format("{}.gathered.{}{}", g.name, forward_ ? "f" : "b", run.block),
                                     size_bytes(g.count, dtype), MemoryClass::Parameters, Scope::Body);
  const Operand whole = flat_view(run.gathered, 0, g.count, dtype);
  if (!forward_ && storage.kept_slice) {
    const int64_t slice = g.count / layout.mesh.size(g.data.reshard);
    emitter_.all_gather(flat_view(storage.kept, 0, slice, dtype), whole, g.data.reshard, like,
                        Traffic::State);
  } else {
    const int64_t range = g.shard_count(layout.mesh.size(g.data.shard));
    emitter_.all_gather(flat_view(st.param, 0, range, dtype), whole, g.data.shard, like, Traffic::State);
  }
  // The last block's parameters are the first that the backward pass needs: gathering them again would gain
  // nothing. (In a pipeline several micro-batches would each keep a copy.)
  const bool is_last = run.block == groups_.back().block && layout.pipeline.empty();
  if (forward_ && wanted_in_backward_[static_cast<size_t>(run.group)] && (layout.keep_gathered || is_last))
    storage.kept = run.gathered;
}

void GroupLowering::after_node(int node) {
  const layout::Layout& layout = emitter_.layout();
  if (!forward_ || layout.zero < 3) return;
  for (const Run& run : runs_) {
    Storage& storage = storage_[static_cast<size_t>(run.group)];
    const Group& g = groups_[static_cast<size_t>(run.group)];
    if (g.data.reshard.empty() || run.last != node || storage.kept.valid() ||
        !wanted_in_backward_[static_cast<size_t>(run.group)])
      continue;
    const DType dtype = emitter_.options().compute;
    const int64_t slice = g.count / layout.mesh.size(g.data.reshard);
    const int64_t first = layout.mesh.index(emitter_.rank(), g.data.reshard) * slice;
    storage.kept =
        emitter_.add_buffer(g.name + ".kept", size_bytes(slice, dtype), MemoryClass::Parameters, Scope::Body);
    storage.kept_slice = true;
    emitter_.emit({.op = &graph::kCopy,
                   .in = {flat_view(run.gathered, first, slice, dtype)},
                   .out = {flat_view(storage.kept, 0, slice, dtype)},
                   .block = run.block,
                   .note = "keep a slice of " + g.name});
  }
}

Operand GroupLowering::param(int group, const Segment& segment, int block) const {
  const DType dtype = emitter_.options().compute;
  BufferId buffer = storage(group).param;
  if (emitter_.layout().zero == 3 && gathered(group)) {
    const auto run = std::find_if(runs_.begin(), runs_.end(),
                                  [&](const Run& r) { return r.group == group && r.block == block; });
    QUINTET_CHECK(run != runs_.end() && run->gathered.valid(), "{} is used before it is gathered",
                  segment.name);
    buffer = run->gathered;
  }
  return {buffer, size_bytes(segment.offset, dtype), segment.local};
}

Operand GroupLowering::grad(int group, const Segment& segment) {
  const DType dtype = emitter_.options().grad;
  const Group& g = groups_[static_cast<size_t>(group)];
  BufferId buffer = storage(group).grad;
  if (divides_grads(group)) {
    Storage& storage = storage_[static_cast<size_t>(group)];
    if (!storage.grad_block.valid())
      storage.grad_block = emitter_.add_buffer(g.name + ".grad.block", size_bytes(g.count, dtype),
                                               MemoryClass::Gradients, Scope::Body);
    buffer = storage.grad_block;
  }
  graph::Type type = segment.local;
  type.dtype = dtype;
  return {buffer, size_bytes(segment.offset, dtype), type};
}

bool GroupLowering::divides_grads(int group) const {
  return emitter_.layout().zero >= 2 && !groups_[static_cast<size_t>(group)].data.shard.empty();
}

Accumulate GroupLowering::grad_accumulate(int group, int contribution) const {
  if (contribution > 0) return Accumulate::Always;
  return divides_grads(group) ? Accumulate::Never : Accumulate::NotFirstCall;
}

void GroupLowering::reduce_grads(int group) {
  const layout::Layout& layout = emitter_.layout();
  const LowerOptions& o = emitter_.options();
  const Group& g = groups_[static_cast<size_t>(group)];
  const Storage& st = storage(group);
  const bool every_micro = divides_grads(group);
  const BufferId buffer = every_micro ? storage_[static_cast<size_t>(group)].grad_block : st.grad;
  const AtomList& shard = g.data.shard;
  const int64_t range = g.shard_count(layout.mesh.size(shard));
  const int64_t first = layout.mesh.index(o.rank, shard) * range;
  Instr like{.when = every_micro ? When::Always : When::LastCall,
             .phase = graph::Phase::W,
             .block = g.block,
             .note = "reduce " + g.name};

  // Everything that is sent must be defined: no other instruction writes the padding between and after
  // parameters.
  const bool is_transient = emitter_.program().buffer(buffer).scope != Scope::Persistent;
  const auto zero = [&](int64_t begin, int64_t end) {
    if (!is_transient || begin >= end) return;
    Instr instr = like;
    instr.op = &graph::kZeroUnlessFirst;
    instr.attrs = {{"keep", int64_t{0}}};
    instr.in = instr.out = {flat_view(buffer, begin, end - begin, o.grad)};
    emitter_.emit(std::move(instr));
  };
  int64_t written = 0;
  for (const layout::Segment& s : g.segments) {
    zero(written, s.offset);
    written = s.offset + s.count;
  }
  zero(written, g.count);

  // Segments whose gradient is also a sum over other axes (norm weights under sequence parallelism) come
  // first, those with the same axes contiguously: one reduction for each run.
  for (size_t i = 0; i < g.segments.size();) {
    const AtomList& atoms = g.segments[i].extra_partial;
    size_t end = i + 1;
    while (end < g.segments.size() && g.segments[end].extra_partial == atoms) ++end;
    if (!atoms.empty()) {
      const int64_t begin = g.segments[i].offset,
                    stop = g.segments[end - 1].offset + g.segments[end - 1].count;
      emitter_.all_reduce(flat_view(buffer, begin, stop - begin, o.grad), atoms, graph::Reduction::Sum, like,
                          Traffic::State);
    }
    i = end;
  }

  // With another dtype on the wire the message is a rounded copy.
  const auto on_wire = [&](const Operand& view, const Instr& when, auto&& collective) {
    if (o.reduce == o.grad) return collective(view);
    const int64_t count = view.type.count();
    const BufferId wire = emitter_.add_buffer(g.name + ".wire", size_bytes(count, o.reduce),
                                              MemoryClass::Communication, Scope::Body);
    const Operand copy = flat_view(wire, 0, count, o.reduce);
    const AtomList& atoms = shard.empty() ? g.data.all : shard;
    Instr cast = when;
    cast.op = &graph::kCast;
    cast.stream = emitter_.stream_of(atoms, Traffic::State);
    cast.attrs = {{"out", std::string(base::to_string(o.reduce))}};
    cast.in = {view};
    cast.out = {copy};
    emitter_.emit(cast);
    const Operand result = collective(copy);
    cast.attrs = {{"out", std::string(base::to_string(o.grad))}};
    cast.in = {result};
    Operand target = view;
    if (result.type.count() != count) target = flat_view(view.buffer, first, range, o.grad);
    cast.out = {target};
    emitter_.emit(cast);
    return target;
  };

  const Operand whole = flat_view(buffer, 0, g.count, o.grad);
  Operand own = whole;
  Instr last = like;
  last.when = When::LastCall;
  if (!shard.empty()) {
    own = on_wire(whole, like, [&](const Operand& message) {
      const Operand part = flat_view(message.buffer, first, range, message.type.dtype);
      emitter_.reduce_scatter(message, part, shard, graph::Reduction::Sum, like, Traffic::State);
      return part;
    });
    if (every_micro) {
      Instr add = like;
      add.op = &graph::kAccumulate;
      add.accumulate = Accumulate::NotFirstCall;
      add.stream = emitter_.stream_of(shard, Traffic::State);
      add.in = {own};
      own = flat_view(st.grad, 0, range, o.grad);
      add.out = {own};
      emitter_.emit(std::move(add));
    }
  }
  const AtomList rest = layout::without(g.data.all, shard);
  if (!rest.empty())
    on_wire(own, last, [&](const Operand& message) {
      emitter_.all_reduce(message, rest, graph::Reduction::Sum, last, Traffic::State);
      return message;
    });
  // Copies of a parameter on several pipeline ranks: summed once per step, when each has its own sum, so that
  // no stage waits for another inside the pipeline.
  if (!g.shared_by.empty()) {
    QUINTET_CHECK(g.shared_by.size() == 2, "{} is shared by {} pipeline ranks", g.name, g.shared_by.size());
    emitter_.all_reduce_on(emitter_.pair(g.shared_by[0], g.shared_by[1], "shared"),
                           emitter_.stream_named("pp.shared"), own, last);
  }
}

std::vector<Operand> GroupLowering::operands(const layout::FlatValue& value) const {
  const GroupSlot* const slot = emitter_.program().find_slot(value.group, value.slot);
  QUINTET_CHECK(slot != nullptr, "no buffer for {} of {}", value.slot,
                groups_[static_cast<size_t>(value.group)].name);
  const auto at = [&](BufferId buffer, int64_t offset_bytes, DType dtype) {
    Operand view = flat_view(buffer, 0, slot->count / slot->block, dtype);
    view.offset_bytes = offset_bytes;
    return view;
  };
  if (!slot->lower.valid()) return {at(slot->buffer, slot->offset_bytes, slot->dtype)};
  return {at(slot->buffer, slot->offset_bytes, emitter_.options().compute), at(slot->lower, 0, DType::I16)};
}

}  // namespace quintet::program
