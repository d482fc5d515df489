#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "program/lowering.h"

namespace quintet::program {

using graph::DType;
using layout::AtomList;

void Emitter::begin(BodyKind kind, int chunk) {
  program_.bodies.push_back({.kind = kind, .chunk = chunk, .instrs = {}});
}

Instr& Emitter::emit(Instr instr) {
  if (instr.kind == InstrKind::Compute && options_.workspace_bytes) {
    instr.workspace_bytes = options_.workspace_bytes(instr);
    QUINTET_CHECK(instr.workspace_bytes == 0 || instr.stream == kComputeStream,
                  "[{}] needs scratch outside the compute stream", instr.op->name);
    Buffer& workspace = program_.buffer(program_.workspace);
    workspace.bytes = std::max(workspace.bytes, instr.workspace_bytes);
  }
  instr.repeated = repeat_.first_instr > 0;
  program_.bodies.back().instrs.push_back(std::move(instr));
  return program_.bodies.back().instrs.back();
}

void Emitter::begin_repeat(const Operand& passes, const Operand& pass, Instr like) {
  like.kind = InstrKind::Repeat;
  like.in = {passes};
  like.out = {pass};
  emit(std::move(like));
  repeat_ = {.first_instr = program_.bodies.back().instrs.size(), .first_buffer = program_.buffers.size()};
}

// Everything from outside must live as long as the last pass: End reads it.
void Emitter::end_repeat() {
  const Repeat repeat = std::exchange(repeat_, {});
  const std::vector<Instr>& instrs = program_.bodies.back().instrs;
  Instr end{.kind = InstrKind::End};
  end.phase = instrs[repeat.first_instr - 1].phase;
  end.block = instrs[repeat.first_instr - 1].block;
  end.note = instrs[repeat.first_instr - 1].note;
  const auto add = [&](const Operand& o) {
    const bool known = std::any_of(end.in.begin(), end.in.end(), [&](const Operand& other) {
      return other.buffer == o.buffer && other.offset_bytes == o.offset_bytes && other.type == o.type;
    });
    if (o.buffer.index() < repeat.first_buffer && !known) end.in.push_back(o);
  };
  for (size_t i = repeat.first_instr - 1; i < instrs.size(); ++i) {
    for (const Operand& o : instrs[i].in) add(o);
    for (const Operand& o : instrs[i].out) add(o);
  }
  emit(std::move(end));
}

BufferId Emitter::add_buffer(std::string name, int64_t bytes, MemoryClass memory_class, Scope scope) {
  program_.buffers.push_back(
      {.name = std::move(name), .bytes = bytes, .memory_class = memory_class, .scope = scope});
  return BufferId(static_cast<int32_t>(program_.buffers.size()) - 1);
}

CommId Emitter::add_comm(Channel channel, const AtomList& atoms, std::vector<RankId> members) {
  const auto position = static_cast<int>(std::ranges::find(members, rank()) - members.begin());
  const CommId next(static_cast<int32_t>(program_.comms.size()));
  const auto [it, is_new] = comms_.try_emplace({channel, atoms}, next);
  if (is_new) program_.comms.push_back({std::move(channel), atoms, std::move(members), position});
  return it->second;
}

CommId Emitter::comm(const AtomList& atoms, Purpose purpose) {
  return add_comm({.axes = mesh().parts(atoms), .purpose = purpose}, atoms, mesh().group(rank(), atoms));
}

RankId Emitter::at_stage(int stage_rank) const {
  return mesh().group(rank(), layout_.pipeline)[static_cast<size_t>(stage_rank)];
}

CommId Emitter::stages(const std::vector<int>& stage_ranks, Purpose purpose) {
  std::vector<RankId> members;
  for (const int stage : stage_ranks) members.push_back(at_stage(stage));
  return add_comm({.purpose = purpose, .places = stage_ranks}, {}, std::move(members));
}

CommId Emitter::comm(const AtomList& atoms, Traffic traffic) {
  const bool over_data = is_data(mesh().atom(atoms.front()).axis);
  if (traffic == Traffic::State) return comm(atoms, over_data ? Purpose::Main : Purpose::State);
  return comm(atoms, over_data ? Purpose::Values : Purpose::Main);
}

StreamId Emitter::stream_of(const AtomList& atoms, Traffic traffic) {
  if (traffic == Traffic::State) return stream_named(std::string(kStateStream));
  const layout::Axis axis = mesh().atom(atoms.front()).axis;
  return stream_named(is_data(axis) ? "dp.values" : std::string(to_string(axis)));
}

StreamId Emitter::stream_named(const std::string& name) {
  for (size_t i = 0; i < program_.streams.size(); ++i)
    if (program_.streams[i].name == name) return StreamId(static_cast<int32_t>(i));
  program_.streams.push_back({name});
  return StreamId(static_cast<int32_t>(program_.streams.size()) - 1);
}

Operand Emitter::scalar(std::string_view name) const {
  const int slot = program_.scalar_slot(name);
  return {
      program_.scalars, slot * kScalarBytes, {program_.scalar_table[static_cast<size_t>(slot)].dtype, {}}};
}

Operand Emitter::state(std::string_view name) const {
  for (const StatePlace& s : program_.states)
    if (s.name == name) return s.place;
  base::fail_internal("no buffer for state {}", name);
}

BufferId Emitter::buffer_named(std::string_view name) const {
  for (size_t i = 0; i < program_.buffers.size(); ++i)
    if (program_.buffers[i].name == name) return BufferId(static_cast<int32_t>(i));
  base::fail_internal("no buffer for {}", name);
}

void Emitter::zero(const Operand& data, bool keep) {
  emit({.op = &graph::kZeroUnlessFirst, .attrs = {{"keep", int64_t{keep}}}, .in = {data}, .out = {data}});
}

void Emitter::all_reduce(const Operand& data, const AtomList& atoms, graph::Reduction reduction, Instr like,
                         Traffic traffic) {
  if (mesh().size(atoms) == 1) return;
  like.kind = InstrKind::Collective;
  like.collective = {CollectiveKind::AllReduce, comm(atoms, traffic), data.type.count(), data.type.dtype,
                     reduction};
  like.stream = stream_of(atoms, traffic);
  like.in = like.out = {data};
  emit(std::move(like));
}

void Emitter::all_reduce_on(CommId comm, StreamId stream, const Operand& data, Instr like) {
  like.kind = InstrKind::Collective;
  like.collective = {CollectiveKind::AllReduce, comm, data.type.count(), data.type.dtype,
                     graph::Reduction::Sum};
  like.stream = stream;
  like.in = like.out = {data};
  emit(std::move(like));
}

// Activations go up, gradients down. Every partner and direction has its own stream: a message never queues
// after one that waits for another partner, which is what schedules assume.
void Emitter::send(const Operand& data, int to, bool up, Instr like) {
  like.kind = InstrKind::Collective;
  like.collective = {CollectiveKind::Send, stages({stage_rank(), to}, up ? Purpose::Up : Purpose::Down),
                     data.type.count(), data.type.dtype, graph::Reduction::Sum};
  like.stream = stream_named(fmt::format("pp.{}.send{}", up ? "up" : "down", to));
  like.in = {data};
  emit(std::move(like));
}

void Emitter::receive(const Operand& data, int from, bool up, Instr like) {
  like.kind = InstrKind::Collective;
  like.collective = {CollectiveKind::Recv, stages({from, stage_rank()}, up ? Purpose::Up : Purpose::Down),
                     data.type.count(), data.type.dtype, graph::Reduction::Sum};
  like.stream = stream_named(fmt::format("pp.{}.recv{}", up ? "up" : "down", from));
  like.out = {data};
  emit(std::move(like));
}

void Emitter::all_gather(const Operand& in, const Operand& out, const AtomList& atoms, Instr like,
                         Traffic traffic) {
  like.kind = InstrKind::Collective;
  like.collective = {CollectiveKind::AllGather, comm(atoms, traffic), in.type.count(), in.type.dtype,
                     graph::Reduction::Sum};
  like.stream = stream_of(atoms, traffic);
  like.in = {in};
  like.out = {out};
  emit(std::move(like));
}

void Emitter::reduce_scatter(const Operand& in, const Operand& out, const AtomList& atoms, graph::Reduction r,
                             Instr like, Traffic traffic) {
  like.kind = InstrKind::Collective;
  like.collective = {CollectiveKind::ReduceScatter, comm(atoms, traffic), out.type.count(), in.type.dtype, r};
  like.stream = stream_of(atoms, traffic);
  like.in = {in};
  like.out = {out};
  emit(std::move(like));
}

void Emitter::all_to_all(const Operand& in, const Operand& out, const AtomList& atoms, Instr like) {
  like.kind = InstrKind::Collective;
  like.collective = {CollectiveKind::AllToAll, comm(atoms, Traffic::Values),
                     in.type.count() / mesh().size(atoms), in.type.dtype, graph::Reduction::Sum};
  like.stream = stream_of(atoms, Traffic::Values);
  like.in = {in};
  like.out = {out};
  emit(std::move(like));
}

// Further passes have a channel of their own: the compute stream executes them.
void Emitter::all_to_all_v(std::vector<Operand> in, const Operand& out, const AtomList& atoms, Instr like) {
  like.kind = InstrKind::Collective;
  const bool repeats = repeat_.first_instr > 0;
  like.collective = {CollectiveKind::AllToAllV, comm(atoms, repeats ? Purpose::Overflow : Purpose::Experts),
                     out.type.count(), out.type.dtype, graph::Reduction::Sum};
  like.stream = repeats ? kComputeStream : stream_named("ep");
  like.in = std::move(in);
  like.out = {out};
  emit(std::move(like));
}

void Emitter::gather_counts(const Operand& in, const Operand& out, const AtomList& atoms, Instr like) {
  like.kind = InstrKind::Collective;
  like.collective = {CollectiveKind::AllGather, comm(atoms, Purpose::Experts), in.type.count(), in.type.dtype,
                     graph::Reduction::Sum};
  like.stream = stream_named("ep");
  like.in = {in};
  like.out = {out};
  emit(std::move(like));
}

void Emitter::ring_shift(const Operand& in, const Operand& out, const AtomList& atoms, Instr like) {
  const std::vector<RankId> ring = mesh().group(rank(), atoms);
  const int size = static_cast<int>(ring.size()), here = mesh().index(rank(), atoms);
  const auto pass = [&](int from, bool sends, const Operand& data) {
    const int to = (from + 1) % size;
    const CommId comm =
        add_comm({.axes = mesh().parts(atoms), .purpose = Purpose::Ring, .places = {from, to}}, atoms,
                 {ring[static_cast<size_t>(from)], ring[static_cast<size_t>(to)]});
    Instr message = like;
    message.kind = InstrKind::Collective;
    message.collective = {sends ? CollectiveKind::Send : CollectiveKind::Recv, comm, data.type.count(),
                          data.type.dtype, graph::Reduction::Sum};
    message.stream = stream_named(sends ? "cp.send" : "cp.recv");
    (sends ? message.in : message.out) = {data};
    emit(std::move(message));
  };
  // The receive first: the buffer being sent is then still live when its offset is chosen. In the same bytes
  // it would wait for the send, which waits for the next rank to receive, and so on around the ring.
  pass((here + size - 1) % size, false, out);
  pass(here, true, in);
}

void Emitter::swap_blocks(const Operand& in, const Operand& out, int64_t a, int64_t b, Instr like) {
  like.op = &graph::kSwapBlocks;
  like.attrs = {{"a", a}, {"b", b}};
  like.in = {in};
  like.out = {out};
  emit(std::move(like));
}

Operand flat_view(BufferId buffer, int64_t first, int64_t count, DType dtype) {
  return {buffer, first * base::size_of(dtype), {dtype, {{graph::Dim::Flat, count}}}};
}

}  // namespace quintet::program
