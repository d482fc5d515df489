// Limits that are applied by rules and respected where sizes are filled in.
#pragma once

#include <cstdint>

namespace quintet::config {

// Ten times the largest published steps.
inline constexpr int64_t kMaxTokensPerStep = int64_t{1} << 30;
// Of one micro-batch on one rank: far above what any memory holds. The compiler applies it, because a recipe
// whose layout is yet to be searched for may have all sequences in one micro-batch.
inline constexpr int64_t kMaxTokensPerMicroBatch = int64_t{1} << 26;

}  // namespace quintet::config
