// The form of an instruction in a trace, the same on every backend.
#pragma once

#include "observe/trace.h"
#include "program/expand.h"

namespace quintet::exec {

inline void add_event(observe::RankTrace& trace, const program::Instr& instr, const program::Call& call,
                      int64_t step, int64_t start_ns, int64_t duration_ns) {
  int64_t bytes = 0;
  for (const program::Operand& o : instr.out) bytes += o.bytes();
  const bool collective = instr.kind == program::InstrKind::Collective;
  trace.add(instr.stream.value,
            collective ? program::to_string(instr.collective.kind)
            : instr.op ? instr.op->name
                       : std::string_view("load_batch"),
            collective ? observe::Category::Communication : observe::Category::Compute, start_ns, duration_ns,
            {{"bytes", bytes},
             {"block", instr.block},
             {"micro_batch", call.micro},
             {"body", call.body},
             {"step", step}});
}

}  // namespace quintet::exec
