// What this machine has.
#pragma once

#include <cstdint>

namespace quintet::base {

// Bytes that programs can still take without swapping; 0 when the system does not say.
int64_t available_memory_bytes();

}  // namespace quintet::base
