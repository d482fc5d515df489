// What NCCL and CUDA say when they fail, and what a reader can do about it.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

namespace quintet::comm::nccl {

// "NCCL 2.28.9: unhandled system error (last message: ...). <what to look at>". Reads NCCL's last message, so
// it is called before the communicator is aborted.
std::string describe(ncclResult_t result, ncclComm_t comm);

// The version that was loaded, "2.28.9"; followed by the one it was compiled with where they differ.
std::string version();

// A CommError unless `status` is success.
void require(cudaError_t status, const char* call);

}  // namespace quintet::comm::nccl
