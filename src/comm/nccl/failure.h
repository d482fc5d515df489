// Messages for NCCL and CUDA failures, with advice.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>

namespace quintet::comm::nccl {

// "NCCL 2.28.9: unhandled system error (last message: ...). <advice>". Reads NCCL's last message, so call it
// before the communicator is aborted.
std::string describe(ncclResult_t result, ncclComm_t comm);

// The loaded version, "2.28.9"; followed by the one it was compiled with if they differ.
std::string version();

// Throws CommError unless `status` is success.
void require(cudaError_t status, const char* call);

}  // namespace quintet::comm::nccl
