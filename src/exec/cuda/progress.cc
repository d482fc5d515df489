#include "exec/cuda/progress.h"

#include <fmt/format.h>

#include <atomic>

#include "kernels/cuda/support/host_signal.h"

namespace quintet::exec::cuda {

Progress::Progress(const program::Program& program, bool enabled)
    : program_(program),
      words_(enabled ? static_cast<int64_t>(program.streams.size() * sizeof(uint32_t)) : 0) {}

void Progress::begin(device::cuda::StreamHandle stream) const {
  for (size_t s = 0; words_.bytes() > 0 && s < program_.streams.size(); ++s)
    kernels::cuda::mark(reinterpret_cast<uint32_t*>(words_.data()) + s, 0, stream);
}

void Progress::mark(int lane, size_t issue, device::cuda::StreamHandle stream) const {
  if (words_.bytes() == 0) return;
  kernels::cuda::mark(reinterpret_cast<uint32_t*>(words_.data()) + lane, static_cast<uint32_t>(issue + 1),
                      stream);
}

std::string Progress::describe() const {
  if (words_.bytes() == 0 || running_ == nullptr) return "";
  std::string text;
  for (size_t s = 0; s < program_.streams.size(); ++s) {
    uint32_t& word = reinterpret_cast<uint32_t*>(words_.data())[s];
    const size_t reached = std::atomic_ref(word).load(std::memory_order_acquire);
    size_t all = 0, done = 0;
    const program::Instr* next = nullptr;
    for (size_t i = 0; i < running_->issues.size(); ++i) {
      const program::Instr& instr = instr_of(program_, running_->issues[i]);
      if (instr.kind != program::InstrKind::Collective || instr.stream.index() != s) continue;
      ++all;
      if (i < reached)
        ++done;
      else if (next == nullptr)
        next = &instr;
    }
    if (next == nullptr) continue;
    const program::Collective& c = next->collective;
    text += fmt::format("\n  stream '{}': {} of the step's {} calls are done; next is {} of {} {} on '{}'{}",
                        program_.streams[s].name, done, all, program::to_string(c.kind), c.count,
                        base::to_string(c.dtype), program_.comms[c.comm.index()].name(),
                        next->note.empty() ? "" : fmt::format(" ({})", next->note));
  }
  return text.empty() ? "" : "\nProgress of the device:" + text;
}

}  // namespace quintet::exec::cuda
