#include "exec/cuda/executor.h"
#include "exec/cuda_backend.h"

namespace quintet::exec::cuda {

std::unique_ptr<Executor> make_executor(const program::Program& program, comm::World& world,
                                        const ExecutorOptions& options) {
  return std::make_unique<CudaExecutor>(program, world, options);
}

std::optional<Missing> missing() {
  std::string reason;
  if (device::cuda::device_count(&reason) > 0) return std::nullopt;
  return Missing{"this machine has no usable GPU (" + reason + ")",
                 "run where there is an NVIDIA card with a driver for CUDA 13"};
}

int64_t available_memory_bytes(int64_t index) {
  const int count = device::cuda::device_count();
  return count == 0 ? 0 : device::cuda::memory_info(static_cast<int>(index % count)).free * count;
}

}  // namespace quintet::exec::cuda
