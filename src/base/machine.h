// Facts about this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quintet::base {

// Memory available to programs without swapping; 0 when unknown.
int64_t available_memory_bytes();
// Of this process (ulimit -v); empty when there is none.
std::optional<int64_t> address_space_limit();

// "process 4242 on node7", to name this process to other people.
std::string process_name();

}  // namespace quintet::base
