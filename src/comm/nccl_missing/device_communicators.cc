#include "base/error.h"
#include "comm/device_communicator.h"

namespace quintet::comm {

bool device_communication_available() { return false; }

DeviceCommunicators make_device_communicators(const std::vector<DeviceGroup>& groups, World&, int) {
  if (groups.empty()) return {};
  base::fail_user(
      "this build cannot communicate between GPUs: install the CUDA toolkit (13.0 or later) and NCCL "
      "(Debian: libnccl-dev; Python: nvidia-nccl-cu13), configure again with -DQUINTET_CUDA=ON and rebuild; "
      "or run with device = \"cpu\"");
}

// Without communicators there are no calls to group.
GroupedCalls::GroupedCalls() = default;
GroupedCalls::~GroupedCalls() = default;
void GroupedCalls::end() { open_ = false; }

}  // namespace quintet::comm
