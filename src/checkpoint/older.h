// What to use instead of a checkpoint that cannot be read.
#pragma once

#include <optional>

#include "checkpoint/store.h"

namespace quintet::checkpoint {

struct OlderCheckpoint {
  Entry entry;
  bool verified = false;  // every checksum; otherwise the manifest, and the sizes and headers of all files
};

// The newest complete checkpoint before the one in `folder`, in the same store, that is not damaged. Larger
// ones than `verify_up_to` bytes are not read as a whole: the ranks of a job wait for the answer.
inline constexpr int64_t kVerifyUpTo = int64_t{16} << 30;
std::optional<OlderCheckpoint> find_older(const base::Path& folder, int64_t verify_up_to = kVerifyUpTo);

}  // namespace quintet::checkpoint
