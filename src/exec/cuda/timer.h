// Start and end of each instruction of a traced run on the device.
#pragma once

#include <vector>

#include "device/cuda/device.h"
#include "exec/cuda/executor.h"

namespace quintet::exec::cuda {

// Two events around every instruction. If the host cannot launch as fast as the device works, its delay is
// included in the instruction.
class CudaExecutor::Timer {
 public:
  // Waits for `stream`: events are related to the host's clock there.
  Timer(const program::Program& program, const program::Expanded& expanded,
        const device::cuda::Stream& stream);

  void begin(size_t issue, const device::cuda::Stream& stream);
  void end(const device::cuda::Stream& stream);
  // After everything has completed.
  void write(observe::RankTrace& trace, int64_t step) const;

 private:
  struct Timed {
    size_t issue;
    device::cuda::Event begin, end;
  };
  const program::Program& program_;
  const program::Expanded& expanded_;
  device::cuda::Event origin_;
  int64_t origin_ns_ = 0;
  std::vector<Timed> timed_;  // in the order of launch; repeated issues occur several times
  size_t next_ = 0;           // the first that is not used
};

}  // namespace quintet::exec::cuda
