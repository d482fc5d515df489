#include "machine/gpu_probe.h"

#include "base/error.h"

namespace quintet::machine {

std::vector<GpuFacts> list_gpus(std::string& reason) {
  reason = "this build has no CUDA backend";
  return {};
}

double gpu_read_bytes_per_s() { return 0; }

GpuProbe probe_gpu(comm::World&, int64_t, const ProbeOptions&) {
  base::fail_user(
      "no GPU to measure: this build has no CUDA backend. Install the CUDA toolkit (13.0 or later), cuDNN "
      "and NCCL, and build with -DQUINTET_CUDA=ON");
}

}  // namespace quintet::machine
