// Ranks as threads of this process: the backend for tests, single-machine CPU runs and the equivalence suite.
#pragma once

#include <functional>

#include "comm/communicator.h"

namespace quintet::comm {

struct LocalOptions {
  std::chrono::nanoseconds timeout = kDefaultTimeout;
};

// Each rank compiles and holds its own program: about 50 ms and 3 MB for the smallest.
inline constexpr int64_t kMaxLocalRanks = 256;

// UserError for more ranks than kMaxLocalRanks. run_local_world() calls it; callers that do something else
// before call it first.
void require_local_ranks(int64_t ranks);

// Runs body(world) on `size` threads, one per rank, and joins them. An exception in one rank aborts the
// others. Rethrows the first exception that is a cause: an AbortedError, which only follows another rank's
// failure, is rethrown only if there is nothing else (a body called World::abort and threw nothing of its
// own).
void run_local_world(int size, const std::function<void(World&)>& body, const LocalOptions& options = {});

}  // namespace quintet::comm
