#include "base/error.h"
#include "exec/cuda_backend.h"

namespace quintet::exec::cuda {

std::optional<Missing> missing() {
  return Missing{"this build has no CUDA backend",
                 "install the CUDA toolkit (13.0 or later), cuDNN and NCCL, configure again with "
                 "-DQUINTET_CUDA=ON and rebuild"};
}

std::unique_ptr<Executor> make_executor(const program::Program&, comm::World&, const ExecutorOptions&) {
  QUINTET_CHECK(false, "this build has no CUDA backend: require_device was not called");
}

SharedMemory shared_memory(int64_t, int64_t) { return {}; }

}  // namespace quintet::exec::cuda
