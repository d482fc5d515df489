// Progress of a run's collectives on the device, also inside a replayed graph: after each of them the device
// writes its number into page-locked memory. A rank that times out reports from it where it is stuck.
#pragma once

#include <string>

#include "device/cuda/device.h"
#include "exec/cuda/plan.h"

namespace quintet::exec::cuda {

class Progress {
 public:
  // Unless `enabled`, nothing is written: a rank without peers never waits.
  Progress(const program::Program& program, bool enabled);

  // Before the launches of a run: resets all streams.
  void begin(device::cuda::StreamHandle stream) const;
  // The run that is waited for.
  void describes(const program::Expanded& expanded) { running_ = &expanded; }
  // After the issue on its lane.
  void mark(int lane, size_t issue, device::cuda::StreamHandle stream) const;
  // One line per stream with incomplete collectives: which is next, and of how many.
  std::string describe() const;

 private:
  const program::Program& program_;
  const program::Expanded* running_ = nullptr;
  device::cuda::Pinned words_;  // by stream: 1 + the last completed issue
};

}  // namespace quintet::exec::cuda
