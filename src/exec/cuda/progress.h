// How far the collectives of a run have come on the device, also inside a graph that is replayed: behind each
// the device writes its number into page-locked memory. A rank that waits in vain tells from it where.
#pragma once

#include <string>

#include "device/cuda/device.h"
#include "exec/cuda/plan.h"

namespace quintet::exec::cuda {

class Progress {
 public:
  // Without `enabled` nothing is written: a rank without peers waits for nobody.
  Progress(const program::Program& program, bool enabled);

  // Before the launches of a run: nothing is done.
  void begin(device::cuda::StreamHandle stream) const;
  // The run that is waited for.
  void describes(const program::Expanded& expanded) { running_ = &expanded; }
  // Behind the issue on its lane.
  void mark(int lane, size_t issue, device::cuda::StreamHandle stream) const;
  // One line per stream with collectives that are not done: which is next, and of how many.
  std::string describe() const;

 private:
  const program::Program& program_;
  const program::Expanded* running_ = nullptr;
  device::cuda::Pinned words_;  // by stream: 1 + the last issue that is done
};

}  // namespace quintet::exec::cuda
