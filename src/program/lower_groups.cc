#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
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
    const layout::GroupStorage at{
        .elements = g.count, .shards = shards, .zero = g.zero, .outer = layout.mesh.size(g.data.outer)};
    // The first element that the buffer of a state has.
    const auto first_of = [&](graph::Role role) {
      if (!layout::is_divided(role, g.zero)) return int64_t{0};
      return layout::is_optimizer(role) ? own.first : shard_first(g);
    };
    for (const layout::StateRow& row : table[i]) {
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
      slot.offset_bytes = size_bytes(own.first - first_of(row.role), row.stored);
      if (row.role == graph::Role::Weight) own.param = slot.buffer;
      if (gradient) own.grad = slot.buffer;
      if (split) {  // the weight has the upper halves
        slot.lower = slot.buffer;
        slot.buffer = own.param;
        slot.offset_bytes = size_bytes(own.first - first_of(graph::Role::Weight), o.compute);
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

int64_t GroupLowering::shard_first(const Group& g) const {
  const layout::Mesh& mesh = emitter_.mesh();
  return mesh.index(emitter_.rank(), g.data.shard) * g.shard_count(mesh.size(g.data.shard));
}

bool GroupLowering::in_place(int group) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  return g.zero < 3 || g.data.shard.empty();
}

bool GroupLowering::gathered(int group) const {
  const Group& g = groups_[static_cast<size_t>(group)];
  return !in_place(group) || (g.trainable && !g.data.state().empty());
}

int64_t GroupLowering::gathered_bytes(const Run& run) const {
  return in_place(run.group)
             ? 0
             : size_bytes(groups_[static_cast<size_t>(run.group)].count, emitter_.options().compute);
}

void GroupLowering::begin_pass(const std::vector<Use>& uses, bool forward,
                               std::vector<char> wanted_in_backward) {
  forward_ = forward;
  wanted_in_backward_ = std::move(wanted_in_backward);
  wanted_in_backward_.resize(groups_.size(), 0);
  runs_.clear();
  std::vector<char> seen(groups_.size(), 0);
  for (const Use& use : uses) {
    if (!gathered(use.group)) continue;
    char& again = seen[static_cast<size_t>(use.group)];
    // Gathered in place once a step, in the first forward pass.
    if (in_place(use.group) && (!forward || again)) continue;
    const Group& g = groups_[static_cast<size_t>(use.group)];
    const auto within = [&](int block) { return block >= g.block && block <= g.last_block; };
    const auto same = std::find_if(runs_.begin(), runs_.end(), [&](const Run& r) {
      return r.group == use.group && (r.block == use.block || (within(r.block) && within(use.block)));
    });
    if (same != runs_.end())
      same->last = use.node;
    else
      runs_.push_back({use.group, use.block, use.node, use.node, 0, again == 0, BufferId()});
    again = 1;
  }
  plan_issues();
}

// A gather is issued when the run `prefetch` runs earlier begins, or later if that would exceed the limit.
void GroupLowering::plan_issues() {
  const auto ahead = static_cast<size_t>(emitter_.layout().prefetch);
  const int64_t limit = emitter_.layout().gathered_limit;
  int issued[] = {0, 0};
  std::vector<size_t> earlier[2];  // runs that gather elsewhere, and in place
  for (size_t i = 0; i < runs_.size(); ++i) {
    const bool stays = in_place(runs_[i].group);
    std::vector<size_t>& list = earlier[stays];
    list.push_back(i);
    int& issue = runs_[i].issue;
    for (size_t back = std::min(ahead, list.size() - 1);; --back) {
      issue = runs_[list[list.size() - 1 - back]].first;
      const bool fits = stays || limit == 0 || live_with(i, issue) <= limit;
      if (fits) break;
      if (back == 0) refuse_limit();
    }
    issue = issued[stays] = std::max(issue, issued[stays]);
  }
}

// Bytes of a run's parameters, gathered before a node, and of those of earlier runs that are still in use
// then, or have not been used yet.
int64_t GroupLowering::live_with(size_t run, int node) const {
  int64_t bytes = gathered_bytes(runs_[run]);
  for (size_t k = 0; k < runs_.size(); ++k) {
    const Storage& st = storage(runs_[k].group);
    const bool kept = !forward_ && st.kept.valid() && !st.kept_slice;
    if (k != run && (k < run || kept) && runs_[k].last >= node) bytes += gathered_bytes(runs_[k]);
  }
  return bytes;
}

void GroupLowering::refuse_limit() const {
  size_t most = 0;
  const auto needs = [&](size_t run) { return live_with(run, runs_[run].first); };
  for (size_t k = 1; k < runs_.size(); ++k)
    if (needs(k) > needs(most)) most = k;
  base::fail_user(
      "parallel.gathered_limit = {} is less than the {} that {} and what is in use with it take; use at "
      "least {}, or a smaller parallel.group",
      base::human_bytes(emitter_.layout().gathered_limit), base::human_bytes(needs(most)),
      groups_[static_cast<size_t>(runs_[most].group)].name, needs(most));
}

void GroupLowering::before_node(int node) {
  for (Run& run : runs_)
    if (run.issue == node) gather(run);
}

// The replicas' parts of this rank's shard, or of the whole group where it has no shards, after their update.
void GroupLowering::gather_outer(int group, Instr like) {
  const Group& g = groups_[static_cast<size_t>(group)];
  if (g.data.outer.empty() || !g.trainable) return;
  like.when = When::FirstCall;
  const DType dtype = emitter_.options().compute;
  const Storage& st = this->storage(group);
  const int64_t range = g.shard_count(emitter_.mesh().size(g.data.shard)), shard = shard_first(g),
                begin = in_place(group) ? shard : 0;
  emitter_.all_gather(flat_view(st.param, begin + st.first - shard, st.count, dtype),
                      flat_view(st.param, begin, range, dtype), g.data.outer, like, Traffic::State);
}

void GroupLowering::gather(Run& run) {
  const layout::Layout& layout = emitter_.layout();
  const Group& g = groups_[static_cast<size_t>(run.group)];
  const DType dtype = emitter_.options().compute;
  const Storage& st = this->storage(run.group);
  Instr like{
      .phase = forward_ ? graph::Phase::F : graph::Phase::B, .block = run.block, .note = "gather " + g.name};
  const int64_t range = g.shard_count(layout.mesh.size(g.data.shard));
  if (forward_ && run.is_first) gather_outer(run.group, like);
  if (in_place(run.group)) {
    if (g.data.shard.empty()) return;  // whole but for what replicas update
    like.when = When::FirstCall;
    emitter_.all_gather(flat_view(st.param, shard_first(g), range, dtype),
                        flat_view(st.param, 0, g.count, dtype), g.data.shard, like, Traffic::State);
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
    emitter_.all_gather(flat_view(st.param, 0, range, dtype), whole, g.data.shard, like, Traffic::State);
  }
  // The last block's parameters are the first that the backward pass needs: gathering them again would gain
  // nothing. (In a pipeline several micro-batches would each keep a copy.)
  const bool is_last = run.block == groups_.back().block && layout.pipeline.empty();
  if (forward_ && wanted_in_backward_[static_cast<size_t>(run.group)] && (g.data.keep || is_last))
    storage.kept = run.gathered;
}

void GroupLowering::after_node(int node) {
  const layout::Layout& layout = emitter_.layout();
  if (!forward_) return;
  for (const Run& run : runs_) {
    Storage& storage = storage_[static_cast<size_t>(run.group)];
    const Group& g = groups_[static_cast<size_t>(run.group)];
    if (in_place(run.group) || g.data.reshard.empty() || run.last != node || storage.kept.valid() ||
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
  if (!in_place(group)) {
    const Group& g = groups_[static_cast<size_t>(group)];
    const auto within = [&](int b) { return b >= g.block && b <= g.last_block; };
    const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Run& r) {
      return r.group == group && (r.block == block || (within(r.block) && within(block)));
    });
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
  const Group& g = groups_[static_cast<size_t>(group)];
  return g.zero >= 2 && !g.data.shard.empty();
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
  const int64_t first = shard_first(g);
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

  // Reduces `view` to its part `to`. With another dtype on the wire the message is a rounded copy.
  const auto reduce_to = [&](const Operand& view, const Operand& to, const Instr& when, auto&& collective) {
    if (o.reduce == o.grad) return collective(view, to);
    const int64_t count = view.type.count();
    const BufferId wire = emitter_.add_buffer(g.name + ".wire", size_bytes(count, o.reduce),
                                              MemoryClass::Communication, Scope::Body);
    const Operand copy = flat_view(wire, 0, count, o.reduce);
    const int64_t begin = (to.offset_bytes - view.offset_bytes) / base::size_of(o.grad);
    const Operand part = flat_view(wire, begin, to.type.count(), o.reduce);
    const AtomList& atoms = shard.empty() ? g.data.all : shard;
    Instr cast = when;
    cast.op = &graph::kCast;
    cast.stream = emitter_.stream_of(atoms, Traffic::State);
    cast.attrs = {{"out", std::string(base::to_string(o.reduce))}};
    cast.in = {view};
    cast.out = {copy};
    emitter_.emit(cast);
    collective(copy, part);
    cast.attrs = {{"out", std::string(base::to_string(o.grad))}};
    cast.in = {part};
    cast.out = {to};
    emitter_.emit(cast);
  };
  const auto scatter_to = [&](const Operand& view, const Operand& to, const AtomList& atoms,
                              const Instr& when) {
    reduce_to(view, to, when, [&](const Operand& message, const Operand& part) {
      emitter_.reduce_scatter(message, part, atoms, graph::Reduction::Sum, when, Traffic::State);
    });
  };

  Operand own = flat_view(buffer, 0, g.count, o.grad);
  Instr last = like;
  last.when = When::LastCall;
  int64_t begin = 0;  // the element of the group with which `own` begins
  if (!shard.empty()) {
    const Operand part = flat_view(buffer, first, range, o.grad);
    scatter_to(own, part, shard, like);
    own = part;
    begin = first;
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
  if (!g.data.outer.empty()) {
    Operand part = flat_view(own.buffer, 0, st.count, o.grad);
    part.offset_bytes = own.offset_bytes + size_bytes(st.first - begin, o.grad);
    scatter_to(own, part, g.data.outer, last);
    own = part;
  }
  const AtomList rest = layout::without(g.data.all, g.data.state());
  if (!rest.empty())
    reduce_to(own, own, last, [&](const Operand& message, const Operand&) {
      emitter_.all_reduce(message, rest, graph::Reduction::Sum, last, Traffic::State);
    });
  // Copies of a parameter on several pipeline ranks: summed once per step, when each has its own sum, so that
  // no stage waits for another inside the pipeline.
  if (!g.shared_by.empty()) {
    emitter_.all_reduce_on(emitter_.stages(g.shared_by, Purpose::Shared), emitter_.stream_named("pp.shared"),
                           own, last);
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
