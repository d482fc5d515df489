#include "program/lifetimes.h"

#include <algorithm>

namespace quintet::program {

namespace {

// Messages around a ring stay inside their body, unlike those between stages.
bool is_ring_send(const Program& p, const Instr& instr) {
  return instr.kind == InstrKind::Collective && instr.collective.kind == CollectiveKind::Send &&
         !joins_stages(p, instr);
}

// A ring message is in flight while the next hop computes: until the instruction that reads what was received
// in exchange. If freed at once, its bytes would go to that hop's results, and the hop would wait for the
// send.
int end_of_send(const std::vector<Instr>& instrs, int send) {
  const Instr& receive = instrs[static_cast<size_t>(send) - 1];  // Emitter::ring_shift
  for (size_t i = static_cast<size_t>(send) + 1; i < instrs.size(); ++i)
    for (const Operand& o : instrs[i].in)
      if (o.buffer == receive.out[0].buffer) return static_cast<int>(i);
  return send;
}

// What a message sends is read until it is complete, while the compute stream goes on: until before the first
// instruction that waits for what was received. Bytes that were free at once would be written by the next
// instruction, which would wait for the message.
int end_of_message(const std::vector<Instr>& instrs, int message) {
  const Instr& sent = instrs[static_cast<size_t>(message)];
  const auto waits = [&](const Instr& instr) {
    for (const auto* list : {&instr.in, &instr.out})
      for (const Operand& o : *list)
        for (const Operand& received : sent.out)
          if (o.buffer == received.buffer) return true;
    return false;
  };
  for (size_t i = static_cast<size_t>(message) + 1; i < instrs.size(); ++i)
    if (instrs[i].kind == InstrKind::Repeat || instrs[i].kind == InstrKind::End || waits(instrs[i]))
      return static_cast<int>(i) - 1;
  return message;
}

// A buffer that ends with an instruction, and the calls in which it has been used.
struct End {
  BufferId buffer;
  When when = When::Always;
};
using Ends = std::vector<std::vector<End>>;  // by instruction

// Buffers that end on the stream of reductions are in flight while the compute stream goes on. Those of one
// block end with the next block's instead, so that two blocks alternate between two places; the bytes of a
// single place would be written again at once, which waits for the reduction.
void end_with_next_block(const std::vector<Instr>& instrs, StreamId reductions, Ends& ends) {
  struct Run {
    int block;
    size_t last;  // instruction
    std::vector<End> buffers;
  };
  std::vector<Run> runs;
  for (size_t i = 0; i < instrs.size(); ++i) {
    if (instrs[i].stream != reductions || instrs[i].repeated || ends[i].empty()) continue;
    if (runs.empty() || runs.back().block != instrs[i].block) runs.push_back({instrs[i].block, i, {}});
    runs.back().last = i;
    runs.back().buffers.insert(runs.back().buffers.end(), ends[i].begin(), ends[i].end());
    ends[i].clear();
  }
  for (size_t r = 0; r < runs.size(); ++r) {
    std::vector<End>& at = ends[runs[std::min(r + 1, runs.size() - 1)].last];
    at.insert(at.end(), runs[r].buffers.begin(), runs[r].buffers.end());
  }
}

// Where a buffer ends that is last touched by an instruction.
int end_of_use(const Program& p, const std::vector<Instr>& instrs, int last, bool keep_sent) {
  const Instr& instr = instrs[static_cast<size_t>(last)];
  if (instr.kind != InstrKind::Collective || joins_stages(p, instr)) return last;
  if (is_ring_send(p, instr)) return end_of_send(instrs, last);
  const bool is_value = p.streams[instr.stream.index()].name != kStateStream;
  return keep_sent && is_value ? end_of_message(instrs, last) : last;
}

}  // namespace

void insert_frees(Program& program, const FreeOptions& options) {
  struct Touch {
    int first_body = -1, last_body = -1, last_instr = -1;
    bool between_stages = false;  // sent to or received from another stage
    // Of the calls of its only body, those in which it is used. In the others its bytes may belong to another
    // buffer, which a Free must not touch.
    When when = When::Always;
  };
  // A step and an evaluation are separate runs: a buffer that both use ends in each.
  std::vector<char> evaluates(program.bodies.size(), 0);
  for (const Call& call : program.eval_calls) evaluates[static_cast<size_t>(call.body)] = 1;
  std::vector<Touch> of_step(program.buffers.size()), of_evaluation(program.buffers.size());
  for (size_t b = 0; b < program.bodies.size(); ++b) {
    const auto& instrs = program.bodies[b].instrs;
    std::vector<Touch>& touches = evaluates[b] ? of_evaluation : of_step;
    for (size_t i = 0; i < instrs.size(); ++i) {
      const auto touch = [&](const Operand& o) {
        Touch& t = touches[o.buffer.index()];
        if (t.first_body < 0)
          t.when = instrs[i].when;
        else if (t.first_body != static_cast<int>(b) || t.when != instrs[i].when)
          t.when = When::Always;
        if (t.first_body < 0) t.first_body = static_cast<int>(b);
        t.last_body = static_cast<int>(b);
        t.last_instr = static_cast<int>(i);
        t.between_stages |= joins_stages(program, instrs[i]);
      };
      for (const Operand& o : instrs[i].in) touch(o);
      for (const Operand& o : instrs[i].out) touch(o);
    }
  }
  std::vector<Ends> ends(program.bodies.size());
  for (size_t b = 0; b < program.bodies.size(); ++b) ends[b].resize(program.bodies[b].instrs.size());
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    Buffer& buffer = program.buffers[i];
    if (buffer.scope == Scope::Persistent || buffer.scope == Scope::Step) continue;
    buffer.scope = Scope::Body;
    for (const Touch* t : {&of_step[i], &of_evaluation[i]}) {
      if (t->last_body < 0) continue;
      // A buffer of a message belongs to its micro-batch: the next micro-batch need not wait for the message.
      if (t->first_body != t->last_body || t->between_stages) buffer.scope = Scope::Micro;
      const auto& instrs = program.bodies[static_cast<size_t>(t->last_body)].instrs;
      const int last = end_of_use(program, instrs, t->last_instr, options.keep_sent);
      ends[static_cast<size_t>(t->last_body)][static_cast<size_t>(last)].push_back(
          {BufferId(static_cast<int32_t>(i)), t->when});
    }
  }
  if (options.gradient_blocks > 1)
    for (size_t s = 0; s < program.streams.size(); ++s)
      if (program.streams[s].name == kStateStream)
        for (size_t b = 0; b < program.bodies.size(); ++b)
          if (program.bodies[b].kind == BodyKind::Backward || program.bodies[b].kind == BodyKind::Weight)
            end_with_next_block(program.bodies[b].instrs, StreamId(static_cast<int32_t>(s)), ends[b]);
  for (size_t b = 0; b < program.bodies.size(); ++b) {
    std::vector<Instr> with_frees;
    with_frees.reserve(program.bodies[b].instrs.size() * 2);
    for (size_t i = 0; i < program.bodies[b].instrs.size(); ++i) {
      const int block = program.bodies[b].instrs[i].block;
      const graph::Phase phase = program.bodies[b].instrs[i].phase;
      const bool repeated = program.bodies[b].instrs[i].repeated;
      with_frees.push_back(std::move(program.bodies[b].instrs[i]));
      for (const End& end : ends[b][i])
        with_frees.push_back({.kind = InstrKind::Free,
                              .frees = end.buffer,
                              .when = end.when,
                              .repeated = repeated,
                              .phase = phase,
                              .block = block});
    }
    program.bodies[b].instrs = std::move(with_frees);
  }
}

}  // namespace quintet::program
