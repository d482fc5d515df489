#include "search/block_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "compiler/compile.h"
#include "config/layer_ranges.h"
#include "program/allocate.h"

namespace quintet::search {
namespace {

using program::BodyKind;
using program::Instr;
using program::InstrKind;

// A model with few blocks, each equivalent to blocks of the recipe's model, and the mapping between them.
struct Small {
  config::Recipe recipe;
  std::vector<int> small_label;  // by block label of the recipe's model: its label in the small model
};

Small make_small(const config::Recipe& r) {
  Small s{r, {}};
  config::Recipe& q = s.recipe;
  config::Parallel& p = q.parallel;
  const bool experts = r.model.moe.experts > 0;
  p.pp = 1;
  p.schedule.clear();
  p.chunks = 1;
  p.stages.clear();
  p.zero = 0;
  p.zero_replicas = 0;
  p.reshard_after_forward = {};
  p.reshard_experts = config::ReshardExperts::Same;
  p.group = {};
  p.gathered_limit = p.persist_below = {};
  p.group_match = p.keep_match = p.persist_match = {};
  p.prefetch = 1;
  // No value of a dense model depends on the data ranks. Experts need the ranks that their exchange spans,
  // which are the innermost; more of them only make communication take longer.
  p.dp_shard = 1;
  p.dp_replicate = std::max<int64_t>(1, p.ep * p.etp / (p.tp * p.cp));
  q.batch.accumulation = 1;
  q.batch.ramp.clear();
  q.run.noise_scale_every = 0;
  q.batch.global = q.batch.micro * p.dp();
  if (q.memory.recompute == config::RecomputeKind::Fit) {  // the least compute and the most kept bytes
    q.memory.recompute = config::RecomputeKind::None;
    q.memory.budget = {};
  }
  // Three blocks represent a run of equal blocks: the first, an inner one and the last. Where blocks differ
  // in more than having experts, or alternate, each represents itself.
  const config::Moe& moe = r.model.moe;
  const bool runs = r.optimizer.groups.empty() && r.precision.fp8_match.empty() && p.tp_column.empty() &&
                    p.tp_row.empty() && p.tp_replicate.empty() && q.memory.recompute_every == 1 &&
                    q.memory.recompute_chunk == 1 && q.memory.recompute_first == 0 &&
                    q.memory.recompute_layers.empty() && moe.every == 1;
  const int64_t dense = experts ? std::min(moe.first_dense, r.model.layers) : r.model.layers;
  const auto few = [&](int64_t n) { return runs ? std::min<int64_t>(n, 3) : n; };
  q.model.layers = few(dense) + few(r.model.layers - dense);
  if (experts) q.model.moe.first_dense = few(dense);
  const auto add_run = [&](int64_t first, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
      const int64_t place = length <= 3 || !runs ? i : i == 0 ? 0 : i + 1 == length ? 2 : 1;
      s.small_label.push_back(static_cast<int>(first + place));
    }
  };
  s.small_label.push_back(0);
  add_run(1, dense);
  add_run(few(dense) + 1, r.model.layers - dense);
  for (int64_t last = 1; last <= 1 + r.model.mtp.layers; ++last)  // multi-token prediction, head
    s.small_label.push_back(static_cast<int>(q.model.layers + last));
  return s;
}

// Runs instructions in issue order from a moment at which everything before may have completed: each stream
// in order, each instruction after the writers of its operands. Communication that needs nothing computed
// since that moment may have been issued earlier and counts as complete. Buffer reuse imposes further order
// in the program itself; leaving it out only makes instructions start earlier, so the bound holds.
class Chain {
 public:
  Chain(const program::Program& p, const sim::Durations& duration) : program_(p), duration_(duration) {}

  void restart() {
    streams_.assign(program_.streams.size(), 0);
    written_.assign(program_.buffers.size(), kBefore);
  }
  struct Span {
    double start, end;
  };
  Span run(const Instr& instr) {
    double operands = kBefore;
    for (const auto* list : {&instr.in, &instr.out})
      for (const program::Operand& o : *list) operands = std::max(operands, written_[o.buffer.index()]);
    if (instr.stream != program::kComputeStream && operands == kBefore) return {0, 0};
    const double start = std::max({0.0, streams_[instr.stream.index()], operands}),
                 end = start + duration_(instr);
    streams_[instr.stream.index()] = end;
    for (const program::Operand& o : instr.out) written_[o.buffer.index()] = end;
    return {start, end};
  }

 private:
  static constexpr double kBefore = -1;
  const program::Program& program_;
  const sim::Durations& duration_;
  std::vector<double> streams_, written_;
};

// Measures the stretches of a pass. A block's stretch runs from its first compute instruction to that of the
// next block. The chain restarts at every block as if everything before were complete, which is never later
// than in the full pass.
void measure(const program::Program& p, const program::Body& body, const sim::Durations& duration,
             const std::function<bool(const Instr&)>& take, const std::function<Stretch&(int block)>& of) {
  Chain chain(p, duration);
  chain.restart();
  std::vector<char> begun;
  // By buffer: the block whose stretch last wrote it in this pass, and the compute time of that stretch up to
  // then.
  struct Written {
    int block = -1;
    double computed = 0;
  };
  std::vector<Written> written(p.buffers.size());
  std::vector<char> waited;              // by block: an instruction has needed an earlier block
  std::vector<double> computed, needed;  // by block: compute so far, and up to the last write others need
  int block = -1;
  for (const Instr& instr : body.instrs) {
    if ((instr.kind != InstrKind::Compute && instr.kind != InstrKind::Collective) || instr.repeated) continue;
    if (!take(instr)) continue;
    const bool computes = instr.kind == InstrKind::Compute && instr.stream == program::kComputeStream;
    const auto label = static_cast<size_t>(std::max(instr.block, 0));
    if (begun.size() <= label) {
      begun.resize(label + 1, 0), waited.resize(label + 1, 0);
      computed.resize(label + 1, 0), needed.resize(label + 1, 0);
    }
    const bool next = computes && !begun[label];
    Chain::Span span = chain.run(instr);
    if (next) {
      if (block >= 0) of(block).to_next = span.start;
      begun[label] = 1;
      block = static_cast<int>(label);
      chain.restart();
      span = chain.run(instr);
    }
    if (block < 0) continue;
    const auto here = static_cast<size_t>(block);
    for (const program::Operand& o : instr.in)
      if (const Written& w = written[o.buffer.index()]; w.block >= 0 && w.block != block) {
        if (!waited[here]) of(block).early = computed[here];
        waited[here] = 1;
        double& last = needed[static_cast<size_t>(w.block)];
        last = std::max(last, w.computed);
      }
    if (computes) {
      of(block).own = of(block).to_next = std::max(of(block).own, span.end);
      computed[here] += span.end - span.start;
    }
    for (const program::Operand& o : instr.out) written[o.buffer.index()] = {block, computed[here]};
  }
  for (size_t b = 0; b < begun.size(); ++b)
    if (begun[b]) of(static_cast<int>(b)).late = computed[b] - needed[b];
}

// Peak bytes of buffers that live within one body, while the instructions of each block run.
void measure_passing(const program::Program& p, const program::Body& body, const std::vector<char>& without,
                     const std::function<int64_t&(int block)>& of) {
  std::vector<char> alive(p.buffers.size(), 0);
  int64_t bytes = 0;
  const auto set = [&](program::BufferId id, bool to) {
    char& was = alive[id.index()];
    if (p.buffer(id).scope != program::Scope::Body || without[id.index()] || static_cast<bool>(was) == to)
      return;
    was = to;
    bytes += to ? p.buffer(id).bytes : -p.buffer(id).bytes;
  };
  for (const Instr& i : body.instrs) {
    for (const auto* list : {&i.in, &i.out})
      for (const program::Operand& o : *list) set(o.buffer, true);
    if (i.block >= 0) of(i.block) = std::max(of(i.block), bytes);
    if (i.kind == InstrKind::Free) set(i.frees, false);
  }
}

// With a single micro-batch, gradients live only as long as activations; here they count as state.
bool is_state(const program::Buffer& b) {
  return b.scope == program::Scope::Persistent || b.memory_class == program::MemoryClass::Gradients;
}

// Adjusts for a backward pass that is not split: ops of B and W are fused (passes/fold.h), which takes less
// time, and passing bytes may be higher or lower. The lower of two byte counts bounds both.
void add_folded(const program::Program& p, const sim::Machine& machine, BlockTables& t) {
  const sim::Durations duration(p, machine);
  const auto row = [&](int block) -> BlockTable& { return t.of_kind[static_cast<size_t>(block)]; };
  std::vector<int64_t> passing(t.of_kind.size(), 0);
  std::vector<char> in_forward(p.buffers.size(), 0), in_backward(p.buffers.size(), 0);
  const std::vector<char> none(p.buffers.size(), 0);
  for (const program::Body& body : p.bodies) {
    const bool forward = body.kind == BodyKind::Forward, backward = body.kind == BodyKind::Backward;
    if (!forward && !backward) continue;
    if (backward)
      measure(
          p, body, duration, [](const Instr&) { return true; },
          [&](int b) -> Stretch& { return row(b).backward; });
    measure_passing(p, body, none, [&](int b) -> int64_t& { return passing[static_cast<size_t>(b)]; });
    for (const Instr& i : body.instrs)
      for (const auto* list : {&i.in, &i.out})
        for (const program::Operand& o : *list) (forward ? in_forward : in_backward)[o.buffer.index()] = 1;
  }
  for (size_t b = 0; b < passing.size(); ++b)
    t.of_kind[b].passing_bytes = std::min(t.of_kind[b].passing_bytes, passing[b]);
  const program::Peak peak = program::peak_of(p);
  int64_t other = peak.by_class[static_cast<size_t>(program::MemoryClass::Gradients)];
  for (size_t id = 0; id < p.buffers.size(); ++id) {
    const program::Buffer& b = p.buffers[id];
    const bool kept = !is_state(b) && in_forward[id] && in_backward[id];
    if (kept || (is_state(b) && b.memory_class != program::MemoryClass::Gradients)) other += b.bytes;
  }
  t.scratch_bytes = std::max<int64_t>(0, peak.live_bytes - other);
}

bool is_phase_w(const Instr& i) { return i.phase == graph::Phase::W; }

}  // namespace

std::string recompute_key(const config::Memory& m) {
  std::string key = fmt::format("r{} e{} c{} f{}", static_cast<int>(m.recompute), m.recompute_every,
                                m.recompute_chunk, m.recompute_first);
  for (const std::string& op : m.recompute_ops) key += " " + op;
  for (const config::RecomputeLayers& entry : m.recompute_layers) {
    key += " l" + config::layer_ranges_text(entry.layers);
    for (const std::string& op : entry.ops) key += " " + op;
  }
  return key;
}

std::string tables_key(const config::Recipe& r) {
  const config::Parallel& p = r.parallel;
  std::string key = fmt::format("tp{} sp{} cp{} {} w{} u{} m{} {}", p.tp, p.sequence_parallel, p.cp,
                                static_cast<int>(p.cp_method), static_cast<int>(p.cp_method_windowed),
                                p.ulysses, r.batch.micro, recompute_key(r.memory));
  if (r.model.moe.experts > 0) key += fmt::format(" ep{} etp{}", p.ep, p.etp);
  return key + fmt::format(" c{}", r.loss.chunk);
}

BlockTables make_tables(const config::Recipe& recipe, const sim::Machine& machine) {
  const Small small = make_small(recipe);
  compiler::CompileOptions options;
  options.fold_backward = false;
  const compiler::Compiled c = compiler::compile_unverified(small.recipe, options);
  const program::Program& p = c.program;
  const sim::Durations duration(p, machine);
  BlockTables t{.of_kind = std::vector<BlockTable>(static_cast<size_t>(c.logical.num_blocks)),
                .kind = small.small_label};
  const auto row = [&](int block) -> BlockTable& { return t.of_kind[static_cast<size_t>(block)]; };

  // By buffer: used in the forward pass, by W, and by the rest of the backward pass.
  std::vector<char> in_forward(p.buffers.size(), 0), in_w(p.buffers.size(), 0), in_b(p.buffers.size(), 0);
  std::vector<int> backward_block(p.buffers.size(), -1);  // the first block to use it in the backward pass
  for (const program::Body& body : p.bodies)
    for (const Instr& i : body.instrs)
      for (const auto* list : {&i.in, &i.out})
        for (const program::Operand& o : *list) {
          const size_t id = o.buffer.index();
          if (is_state(p.buffers[id])) continue;
          if (body.kind == BodyKind::Forward) in_forward[id] = 1;
          if (body.kind != BodyKind::Backward) continue;
          (is_phase_w(i) ? in_w : in_b)[id] = 1;
          if (backward_block[id] < 0) backward_block[id] = i.block;
        }
  std::vector<char> left(p.buffers.size(), 0);
  for (size_t id = 0; id < p.buffers.size(); ++id) {
    if (backward_block[id] < 0) continue;
    BlockTable& b = row(backward_block[id]);
    const int64_t bytes = p.buffers[id].bytes;
    if (in_forward[id]) {
      b.kept_bytes += bytes;
      if (in_w[id]) b.kept_for_w += bytes;
    } else if (in_w[id] && in_b[id]) {
      b.left_for_w += bytes;
      left[id] = 1;
    }
  }
  const std::vector<char> none(p.buffers.size(), 0);
  for (const program::Body& body : p.bodies) {
    const auto all = [](const Instr&) { return true; };
    if (body.kind == BodyKind::Forward)
      measure(p, body, duration, all, [&](int b) -> Stretch& { return row(b).forward; });
    if (body.kind == BodyKind::Backward) {
      measure(
          p, body, duration, [](const Instr& i) { return !is_phase_w(i); },
          [&](int b) -> Stretch& { return row(b).backward_b; });
      for (const Instr& i : body.instrs)
        if (is_phase_w(i) && i.kind == InstrKind::Compute && i.stream == program::kComputeStream)
          row(i.block).backward_w += duration(i);
    }
    if (body.kind == BodyKind::Forward || body.kind == BodyKind::Backward) {
      measure_passing(p, body, none, [&](int b) -> int64_t& { return row(b).passing_bytes; });
      measure_passing(p, body, left, [&](int b) -> int64_t& { return row(b).passing_split; });
    }
  }
  const std::vector<layout::StateRows> states = layout::state_table(c.step_graph.states, c.groups);
  for (size_t i = 0; i < c.groups.size(); ++i) {
    const layout::Group& g = c.groups[i];
    GroupTable group{.expert = layout::is_expert_param(g.segments.front().local),
                     .trainable = g.trainable,
                     .used = g.used,
                     .states = states[i]};
    for (const layout::Segment& s : g.segments) group.elements += s.count;
    row(g.block).groups.push_back(std::move(group));
  }
  options.fold_backward = true;
  add_folded(compiler::compile_unverified(small.recipe, options).program, machine, t);
  return t;
}

}  // namespace quintet::search
