#include "comm/nccl/failure.h"

#include <fmt/format.h>

#include "comm/errors.h"

namespace quintet::comm::nccl {
namespace {

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

const char* advice(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "A CUDA call failed: an earlier kernel may have faulted (run under compute-sanitizer), memory "
             "may be full, or the driver may be older than the library (nvidia-smi). NCCL_DEBUG=WARN names "
             "the call";
    case ncclSystemError:
      return "A system call failed: check that NCCL_SOCKET_IFNAME names an interface over which the hosts "
             "reach each other (lo if all ranks are on one host), that no firewall is between them, that "
             "/dev/shm has space and that memory may be locked (ulimit -l). NCCL_DEBUG=INFO names the call";
    case ncclInvalidUsage:
      return "Processes that share a GPU each need their own NCCL_HOSTID; otherwise every rank of a host "
             "needs its own GPU. NCCL_DEBUG=WARN names the violated rule";
    case ncclInvalidArgument:
      return "NCCL rejected an argument: the loaded library may be older than the one this program was built "
             "with. NCCL_DEBUG=WARN names the argument";
    case ncclRemoteError:
      return "A peer ended or the network to it was lost: its own output has the cause. NCCL_DEBUG=WARN "
             "names the connection";
    default:
      return "set NCCL_DEBUG=INFO on all ranks for details";
  }
}

}  // namespace

std::string version() {
  int loaded = 0;
  if (ncclGetVersion(&loaded) != ncclSuccess || loaded == NCCL_VERSION_CODE)
    return version_text(NCCL_VERSION_CODE);
  return fmt::format("{} (built with {})", version_text(loaded), version_text(NCCL_VERSION_CODE));
}

std::string describe(ncclResult_t result, ncclComm_t comm) {
  const char* last = ncclGetLastError(comm);
  return fmt::format("NCCL {}: {}{}. {}", version(), ncclGetErrorString(result),
                     last != nullptr && *last != 0 ? fmt::format(" (last message: {})", last) : "",
                     advice(result));
}

void require(cudaError_t status, const char* call) {
  if (status != cudaSuccess)
    throw CommError(
        fmt::format("{} failed: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status)));
}

}  // namespace quintet::comm::nccl
