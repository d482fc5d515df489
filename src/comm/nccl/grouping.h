// The calls that a thread has collected in a GroupedCalls.
#pragma once

#include <vector>

#include "comm/nccl/nccl_communicator.h"

namespace quintet::comm::nccl {

// Where this thread's calls are collected; null if it has no open group.
std::vector<Request>* open_group();

}  // namespace quintet::comm::nccl
