// Limits that are applied by rules and respected where sizes are filled in.
#pragma once

#include <cstdint>

namespace quintet::config {

// Ten times the largest published steps.
inline constexpr int64_t kMaxTokensPerStep = int64_t{1} << 30;
// Of one micro-batch on one rank: far above what any memory holds.
inline constexpr int64_t kMaxTokensPerMicroBatch = int64_t{1} << 26;
inline constexpr const char* kMicroBatchIsSane = "a micro-batch has at most 2^26 tokens per rank";

}  // namespace quintet::config
