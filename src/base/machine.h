// Facts about this machine.
#pragma once

#include <cstdint>

namespace quintet::base {

// Memory available to programs without swapping; 0 when unknown.
int64_t available_memory_bytes();

}  // namespace quintet::base
