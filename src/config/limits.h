// Limits that are applied by rules and respected where sizes are filled in.
#pragma once

#include <cstdint>

namespace quintet::config {

// Ten times the largest published steps.
inline constexpr int64_t kMaxTokensPerStep = int64_t{1} << 30;

}  // namespace quintet::config
