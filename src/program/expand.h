// The expanded program: the instructions of a list of calls in issue order, each with its position in its
// stream and the instructions of other streams that must be complete before it starts. Streams run in order,
// so a wait for one instruction is a wait for all before it in that stream.
#pragma once

#include "program/program.h"

namespace quintet::program {

struct Wait {
  StreamId stream;
  int position = 0;  // the instruction at this position of the stream must be complete
  friend bool operator==(const Wait&, const Wait&) = default;
};

struct Issue {
  int call = 0;  // index into the calls
  int body = 0, instr = 0;
  int position = 0;  // in its stream
  int first_wait = 0, num_waits = 0;
};

struct Expanded {
  std::vector<Call> calls;
  std::vector<Issue> issues;
  std::vector<Wait> waits;
  int num_streams = 1;
};

inline const Instr& instr_of(const Program& p, const Issue& issue) {
  return p.bodies[static_cast<size_t>(issue.body)].instrs[static_cast<size_t>(issue.instr)];
}

// Whether an instruction is executed in a call, and whether it then adds to its output.
inline bool takes_part(const Instr& instr, const Call& call) {
  return instr.when == When::Always || (instr.when == When::FirstCall && call.first) ||
         (instr.when == When::LastCall && call.last);
}
inline bool accumulates(const Instr& instr, const Call& call) {
  return instr.accumulate == Accumulate::Always ||
         (instr.accumulate == Accumulate::NotFirstCall && !call.first);
}

// Expands the calls and inserts the minimum of waits that order every two accesses to the same bytes of which
// one writes. All streams are drained between two runs of the result.
Expanded expand(const Program& program, const std::vector<Call>& calls);

}  // namespace quintet::program
