#include "exec/executor.h"

#include <algorithm>

#include "base/error.h"
#include "base/machine.h"
#include "exec/cpu/executor.h"
#include "exec/cuda_backend.h"
#include "exec/cuda_sizes/shapes.h"
#include "exec/cuda_sizes/workspace.h"

namespace quintet::exec {

void Executor::note_touched(const program::Program& program, int64_t top) {
  QUINTET_CHECK(top <= program.arena_bytes,
                "rank {}: a kernel wrote {} bytes beyond the planned arena of {} bytes", program.rank,
                top - program.arena_bytes, program.arena_bytes);
  measured_ = std::max(measured_, top);
}

std::unique_ptr<Executor> make_executor(const program::Program& program, comm::World& world,
                                        const ExecutorOptions& options) {
  if (options.device == Device::Cuda) return cuda::make_executor(program, world, options);
  return std::make_unique<cpu::CpuExecutor>(program, world, options);
}

std::function<int64_t(const program::Instr&)> workspace_of(Device device, int threads) {
  if (device == Device::Cuda) return cuda::workspace_bytes;
  return [threads](const program::Instr& i) { return cpu::workspace_bytes(i, threads); };
}

std::string remark_on(Device device, const program::Instr& instr) {
  return device == Device::Cuda ? cuda::remark_on(instr) : std::string();
}

void require_device(Device device) {
  if (device == Device::Cuda) cuda::require_device();
}

int64_t available_memory_bytes(Device device, int64_t index) {
  return device == Device::Cuda ? cuda::available_memory_bytes(index) : base::available_memory_bytes();
}

}  // namespace quintet::exec
