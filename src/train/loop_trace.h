// Tracing a few steps of a run.
#pragma once

#include <optional>
#include <string_view>

#include "base/file.h"
#include "comm/communicator.h"
#include "observe/trace.h"
#include "train/rank.h"

namespace quintet::train {

// Steps as metrics.jsonl counts them, from 1; both ends belong to it.
struct TraceRange {
  int64_t first = 0, last = 0;
  bool contains(int64_t step) const { return first <= step && step <= last; }
};

// "steps=5-6" or "steps=5"; anything else is a UserError.
TraceRange parse_trace_range(std::string_view text);

// An empty trace with the streams of the rank's program and room for `steps` steps.
observe::RankTrace make_trace(const Rank& rank, base::RankId id, int64_t steps);

// Brings the ranks' events to rank 0, which writes the file. Collective.
void write_gathered_trace(const observe::RankTrace& trace, comm::World& world, const base::Path& path);

}  // namespace quintet::train
