// Argument checks that every communicator makes before a call moves any data.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "comm/recorder.h"

namespace quintet::comm {

// Throw InternalError naming the call and the communicator `name`, which has `size` members.
void check_count(const std::string& name, CallKind kind, int64_t count);
void check_member(const std::string& name, int size, CallKind kind, int member);
// Checks one side ("send", "recv") of an all_to_all_v.
void check_ranges(const std::string& name, int size, const char* side, std::span<const int64_t> offsets,
                  std::span<const int64_t> counts);

}  // namespace quintet::comm
