#include <algorithm>

#include "exec/cuda/executor.h"
#include "exec/cuda_architectures.h"
#include "exec/cuda_backend.h"

namespace quintet::exec::cuda {

std::unique_ptr<Executor> make_executor(const program::Program& program, comm::World& world,
                                        const ExecutorOptions& options) {
  return std::make_unique<CudaExecutor>(program, world, options);
}

std::optional<Missing> missing() {
  std::string reason;
  const int count = device::cuda::device_count(&reason);
  if (count == 0)
    return Missing{"this machine has no usable GPU (" + reason + ")",
                   "run on a machine with an NVIDIA GPU and a driver for CUDA 13"};
  // Any GPU that a rank may use: an error only if the build has code for none of them.
  for (int i = 0; i < count; ++i) {
    const device::cuda::DeviceFacts gpu = device::cuda::device_facts(i);
    if (has_code(QUINTET_CUDA_ARCHITECTURES, gpu.major, gpu.minor)) return std::nullopt;
  }
  const device::cuda::DeviceFacts gpu = device::cuda::device_facts(0);
  const std::string architecture = architecture_of(gpu.major, gpu.minor);
  return Missing{"this build has code for " QUINTET_CUDA_ARCHITECTURES " only, and GPU 0 (" + gpu.name +
                     ") has architecture " + architecture,
                 "configure again with -DCMAKE_CUDA_ARCHITECTURES=" + architecture + " and rebuild"};
}

// Ranks are distributed over the machine's GPUs, even where each process sees only one GPU of its own. If
// they are not, and a GPU has more ranks, this reports too much and the allocation fails.
SharedMemory shared_memory(int64_t index, int64_t ranks_here) {
  const int64_t seen = device::cuda::device_count();
  if (seen == 0) return {};
  const int64_t gpus = std::max(seen, device::cuda::machine_gpu_count());
  return {device::cuda::memory_info(static_cast<int>(index % seen)).free, (ranks_here + gpus - 1) / gpus};
}

}  // namespace quintet::exec::cuda
