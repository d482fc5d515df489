#include "plan/memory.h"

#include <algorithm>
#include <numeric>

#include "plan/memory_timeline.h"
#include "program/allocate.h"
#include "program/expand.h"

namespace quintet::plan {

int64_t RankMemory::live_bytes() const {
  return std::accumulate(by_class.begin(), by_class.end(), int64_t{0});
}

namespace {

// Without a pipeline, all micro-batches between the first and the last use the same memory and can be
// skipped. nullopt: use the program as it is.
std::optional<program::Program> shortened(const program::Program& p, bool pipeline) {
  if (pipeline || p.calls.size() <= 16) return std::nullopt;
  program::Program few = p;
  few.calls.assign(p.calls.begin(), p.calls.begin() + 8);
  few.calls.insert(few.calls.end(), p.calls.end() - 8, p.calls.end());
  return few;
}

bool is_routed(const program::Operand& o) {
  return std::any_of(o.type.dims.begin(), o.type.dims.end(),
                     [](const graph::DimSize& d) { return d.name == graph::Dim::Routed; });
}

}  // namespace

RoutedBytes routed_at_peak(const program::Program& p, const sim::Machine& machine) {
  using program::InstrKind;
  std::vector<const program::Operand*> routed;
  for (const program::Body& body : p.bodies)
    for (const program::Instr& i : body.instrs)
      for (const auto* list : {&i.in, &i.out})
        for (const program::Operand& o : *list)
          if (is_routed(o)) routed.push_back(&o);
  if (routed.empty()) return {};
  // By buffer: bytes in use at the expected number of rows; negative: not an expert row buffer.
  std::vector<int64_t> expected(p.buffers.size(), -1);
  const sim::Durations durations(p, machine);
  for (const program::Operand* o : routed) {
    int64_t& bytes = expected[o->buffer.index()];
    bytes = std::max(bytes, std::min(p.buffer(o->buffer).bytes, durations.expected(o->type).bytes()));
  }

  RoutedBytes now, at_peak;
  int64_t live = 0, most = -1;
  std::vector<char> is_live(p.buffers.size(), 0);
  const auto set = [&](program::BufferId id, bool to) {
    char& was = is_live[id.index()];
    if (p.buffer(id).scope == program::Scope::Persistent || static_cast<bool>(was) == to) return;
    was = to;
    const int64_t sign = to ? 1 : -1, bytes = p.buffer(id).bytes;
    live += sign * bytes;
    if (expected[id.index()] < 0) return;
    now.room += sign * bytes;
    now.expected += sign * expected[id.index()];
  };
  for (const program::Call& call : p.calls)
    for (const program::Instr& i : p.bodies[static_cast<size_t>(call.body)].instrs) {
      if (!program::takes_part(i, call)) continue;
      for (const program::Operand& o : i.in) set(o.buffer, true);
      for (const program::Operand& o : i.out) set(o.buffer, true);
      if (live > most) most = live, at_peak = now;
      if (i.kind == InstrKind::Free) set(i.frees, false);
    }
  return at_peak;
}

Memory memory_of(const compiler::Ranks& ranks, const sim::Machine& machine,
                 const std::vector<program::SavingMemory>& copies) {
  const hardware::Cluster& cluster = machine.cluster;
  const bool is_cpu = cluster.accelerator.is_cpu();  // one memory for all
  Memory memory{.limit = cluster.accelerator.memory_bytes, .host_limit = is_cpu ? 0 : cluster.host_bytes};
  for (size_t i = 0; i < ranks.program.size(); ++i) {
    const program::Program& p = ranks.program[i].program;
    const std::optional<program::Program> few = shortened(p, !ranks.layout.pipeline.empty());
    const program::Peak peak = program::peak_of(few ? *few : p);
    const RoutedBytes routed = routed_at_peak(few ? *few : p, machine);
    memory.ranks.push_back({.rank = p.rank,
                            .stage = static_cast<int>(i),
                            .arena_bytes = p.arena_bytes,
                            .by_class = peak.by_class,
                            .runtime_bytes = cluster.accelerator.runtime_bytes,
                            .device_copies = is_cpu ? copies[i].total() : 0,
                            .host_copies = is_cpu ? 0 : copies[i].total(),
                            .peak_at = instruction_words(p, peak.body, peak.instr),
                            .routed_bytes = routed.room,
                            .expected_routed_bytes = routed.expected});
    if (memory.ranks.back().total() > memory.ranks[memory.most_loaded].total()) memory.most_loaded = i;
  }
  if (is_cpu) return memory;
  // Of the fullest node: its ranks may be of several stages.
  const layout::Mesh& mesh = ranks.layout.mesh;
  std::vector<int64_t> nodes(static_cast<size_t>((mesh.world() - 1) / cluster.per_node + 1));
  for (int r = 0; r < mesh.world(); ++r) {
    const int stage = mesh.index(base::RankId(r), ranks.layout.pipeline);
    nodes[static_cast<size_t>(r / cluster.per_node)] += copies[static_cast<size_t>(stage)].total();
  }
  memory.host_copies = *std::max_element(nodes.begin(), nodes.end());
  return memory;
}

}  // namespace quintet::plan
