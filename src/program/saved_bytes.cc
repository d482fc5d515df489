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

SavedByClass saved_by_class(const Program& program, const std::vector<layout::Group>& groups,
                            const std::vector<graph::StateDecl>& states, const layout::Layout& layout,
                            int pipeline_place) {
  std::vector<layout::SavedShare::Whole> whole;
  for (const StatePlace& s : program.states) whole.push_back({s.name, s.place.bytes()});
  const layout::SavedShare share(groups, states, std::move(whole), layout);
  SavedByClass saved;
  for (int r = 0; r < layout.mesh.world(); ++r) {
    const base::RankId rank(r);
    if (layout.mesh.index(rank, layout.pipeline) != pipeline_place) continue;
    const layout::SavedShare::Bytes bytes = share.bytes(rank);
    if (bytes.total() > saved.most.total()) saved.most = bytes;
    if (bytes.frozen > 0) ++saved.frozen_files;
  }
  return saved;
}

SavingMemory saving_memory(const Program& program, const SavedByClass& saved, const SavingKeys& keys) {
  SavingMemory memory;
  const int64_t held = keys.peers ? saved_bytes(program) : 0;
  if (keys.staged) memory.staging = saved.most.total();
  if (keys.on_gpu) memory.staging += held;  // page-locked, on the way to the copies
  memory.peers = 4 * held;
  return memory;
}

}  // namespace quintet::program
