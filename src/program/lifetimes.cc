#include "program/lifetimes.h"

namespace quintet::program {

namespace {

// Between pipeline stages; messages round a ring stay inside their body.
bool is_message(const Program& p, const Instr& instr) {
  return instr.kind == InstrKind::Collective && p.comms[instr.collective.comm.index()].atoms.empty() &&
         (instr.collective.kind == CollectiveKind::Send || instr.collective.kind == CollectiveKind::Recv);
}

}  // namespace

void insert_frees(Program& program) {
  struct Touch {
    int first_body = -1, last_body = -1, last_instr = -1;
    bool travels = false;  // sent to or received from another stage
  };
  // A step and an evaluation are runs of their own: a buffer that both use ends in each.
  std::vector<char> evaluates(program.bodies.size(), 0);
  for (const Call& call : program.eval_calls) evaluates[static_cast<size_t>(call.body)] = 1;
  std::vector<Touch> of_step(program.buffers.size()), of_evaluation(program.buffers.size());
  for (size_t b = 0; b < program.bodies.size(); ++b) {
    const auto& instrs = program.bodies[b].instrs;
    std::vector<Touch>& touches = evaluates[b] ? of_evaluation : of_step;
    for (size_t i = 0; i < instrs.size(); ++i) {
      const auto touch = [&](const Operand& o) {
        Touch& t = touches[o.buffer.index()];
        if (t.first_body < 0) t.first_body = static_cast<int>(b);
        t.last_body = static_cast<int>(b);
        t.last_instr = static_cast<int>(i);
        t.travels |= is_message(program, instrs[i]);
      };
      for (const Operand& o : instrs[i].in) touch(o);
      for (const Operand& o : instrs[i].out) touch(o);
    }
  }
  std::vector<std::vector<std::vector<BufferId>>> ends(program.bodies.size());
  for (size_t b = 0; b < program.bodies.size(); ++b) ends[b].resize(program.bodies[b].instrs.size());
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    Buffer& buffer = program.buffers[i];
    if (buffer.scope == Scope::Persistent) continue;
    buffer.scope = Scope::Body;
    for (const Touch* t : {&of_step[i], &of_evaluation[i]}) {
      if (t->last_body < 0) continue;
      // A buffer in a message is its micro-batch's own: the next micro-batch need not wait for the message.
      if (t->first_body != t->last_body || t->travels) buffer.scope = Scope::Micro;
      ends[static_cast<size_t>(t->last_body)][static_cast<size_t>(t->last_instr)].push_back(
          BufferId(static_cast<int32_t>(i)));
    }
  }
  for (size_t b = 0; b < program.bodies.size(); ++b) {
    std::vector<Instr> with_frees;
    with_frees.reserve(program.bodies[b].instrs.size() * 2);
    for (size_t i = 0; i < program.bodies[b].instrs.size(); ++i) {
      const int block = program.bodies[b].instrs[i].block;
      const graph::Phase phase = program.bodies[b].instrs[i].phase;
      with_frees.push_back(std::move(program.bodies[b].instrs[i]));
      for (const BufferId id : ends[b][i])
        with_frees.push_back({.kind = InstrKind::Free, .frees = id, .phase = phase, .block = block});
    }
    program.bodies[b].instrs = std::move(with_frees);
  }
}

}  // namespace quintet::program
