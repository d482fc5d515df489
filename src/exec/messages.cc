#include "exec/messages.h"

#include <algorithm>
#include <map>

namespace quintet::exec {

using program::CollectiveKind;
using program::Instr;
using program::InstrKind;

bool is_message(const program::Program& p, const Instr& instr) {
  const CollectiveKind kind = instr.collective.kind;
  const bool between_two = kind == CollectiveKind::Send || kind == CollectiveKind::Recv;
  return joins_stages(p, instr) || (instr.kind == InstrKind::Collective && between_two);
}

std::vector<char> buffers_in_messages(const program::Program& p) {
  std::vector<char> in_message(p.buffers.size(), 0);
  for (const program::Body& body : p.bodies)
    for (const Instr& instr : body.instrs)
      if (is_message(p, instr))
        for (const auto* operands : {&instr.in, &instr.out})
          for (const program::Operand& o : *operands) in_message[o.buffer.index()] = 1;
  return in_message;
}

std::vector<int> frees_before_messages(const program::Program& p, const program::Expanded& expanded,
                                       const std::vector<char>& in_message) {
  struct Freed {
    int64_t begin, end;
    int position;
  };
  std::map<program::BufferId, Freed> freed;  // the last one of each buffer
  std::vector<int> waits(expanded.issues.size(), -1);
  for (size_t i = 0; i < expanded.issues.size(); ++i) {
    const Instr& instr = instr_of(p, expanded.issues[i]);
    if (instr.kind == InstrKind::Free && !in_message[instr.frees.index()]) {
      const program::Buffer& b = p.buffer(instr.frees);
      freed[instr.frees] = {b.offset, b.offset + b.bytes, expanded.issues[i].position};
    }
    if (!is_message(p, instr)) continue;
    for (const program::Operand& o : instr.out) {
      const int64_t begin = p.buffer(o.buffer).offset + o.offset_bytes, end = begin + o.bytes();
      for (const auto& [id, f] : freed)
        if (f.begin < end && begin < f.end) waits[i] = std::max(waits[i], f.position);
    }
  }
  return waits;
}

}  // namespace quintet::exec
