#include "program/saved_bytes.h"

namespace quintet::program {

int64_t checkpoint_bytes(const std::vector<graph::StateDecl>& states) {
  int64_t bytes = 0;
  for (const graph::StateDecl& s : states)
    if (s.keep == graph::Keep::Saved && s.role != graph::Role::Scalar)  // split masters are saved whole
      bytes += s.encoding == graph::Encoding::Split ? s.type.bytes() : graph::stored_bytes(s);
  return bytes;
}

int64_t saved_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const GroupSlot& s : program.slots)
    if (s.keep == graph::Keep::Saved) bytes += (s.count + s.block - 1) / s.block * base::size_of(s.dtype);
  for (const StatePlace& s : program.states) bytes += s.place.bytes();
  return bytes;
}

SavingMemory saving_memory(const Program& program, const std::vector<graph::StateDecl>& states,
                           const SavingKeys& keys) {
  SavingMemory memory;
  const int64_t held = keys.peers ? saved_bytes(program) : 0;
  if (keys.staged) memory.staging = (checkpoint_bytes(states) + program.world - 1) / program.world;
  if (keys.on_gpu) memory.staging += held;  // page-locked, on the way to the copies
  memory.peers = 4 * held;
  return memory;
}

}  // namespace quintet::program
