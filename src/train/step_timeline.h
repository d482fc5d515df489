// One traced step in a few kilobytes per rank, for the report of a run: neighbouring instructions of the same
// phase and micro-batch, or of the same collective, become one span.
#pragma once

#include <string>

#include "base/file.h"
#include "comm/communicator.h"
#include "observe/trace.h"
#include "program/program.h"
#include "train/rank.h"

namespace quintet::train {

// A run traces this step by itself unless it has more instructions than kMaxTraced, whose events take 12 MB.
inline constexpr int64_t kTracedStep = 5;
inline constexpr size_t kMaxTraced = 50'000;
// In larger worlds only the first rank of each pipeline stage is kept.
inline constexpr int kMaxTimelines = 32;

// One rank's part: {"rank", "begin_ns", "streams": [{"name", "spans": [[start_ns, ns, what, micro], ...]}]},
// with starts relative to begin_ns and begin_ns relative to `origin_ns`. Only events of `step`. "micro" is
// -1 for what belongs to no micro-batch. Empty when there are no such events.
std::string timeline_json(const observe::RankTrace& trace, const program::Program& program, int64_t step,
                          int64_t origin_ns);

// Collective. Rank 0 writes timeline.json.
void write_timeline(const observe::RankTrace& trace, const Rank& rank, int64_t step, comm::World& world,
                    const base::Path& path);

}  // namespace quintet::train
