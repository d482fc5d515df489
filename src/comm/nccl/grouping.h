// The calls a thread has gathered in a GroupedCalls.
#pragma once

#include <vector>

#include "comm/nccl/nccl_communicator.h"

namespace quintet::comm::nccl {

// Where this thread's calls are gathered; null when it has no group open.
std::vector<Request>* open_group();

}  // namespace quintet::comm::nccl
