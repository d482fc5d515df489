#include "base/error.h"
#include "exec/cuda_backend.h"

namespace quintet::exec::cuda {
namespace {

[[noreturn]] void say_what_to_do() {
  base::fail_user(
      "run.device is \"cuda\", but this build has no CUDA backend: install the CUDA toolkit (13.0 or later), "
      "cuDNN and NCCL, configure again with -DQUINTET_CUDA=ON and rebuild; or use run.device = \"cpu\"");
}

}  // namespace

std::unique_ptr<Executor> make_executor(const program::Program&, comm::World&, const ExecutorOptions&) {
  say_what_to_do();
}
void require_device() { say_what_to_do(); }
int64_t available_memory_bytes(int64_t) { return 0; }

}  // namespace quintet::exec::cuda
