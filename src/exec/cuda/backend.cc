#include "base/error.h"
#include "exec/cuda/executor.h"
#include "exec/cuda_backend.h"

namespace quintet::exec::cuda {

std::unique_ptr<Executor> make_executor(const program::Program& program, comm::World& world,
                                        const ExecutorOptions& options) {
  require_device();
  return std::make_unique<CudaExecutor>(program, world, options);
}

void require_device() {
  std::string reason;
  if (device::cuda::device_count(&reason) == 0)
    base::fail_user(
        "run.device is \"cuda\", but this machine has no usable GPU ({}): run where there is an NVIDIA card "
        "with a driver for CUDA 13, or use run.device = \"cpu\"",
        reason);
}

int64_t available_memory_bytes(int64_t index) {
  const int count = device::cuda::device_count();
  return count == 0 ? 0 : device::cuda::memory_info(static_cast<int>(index % count)).free * count;
}

}  // namespace quintet::exec::cuda
