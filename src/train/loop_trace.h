// Traces selected steps of a run.
#pragma once

#include <optional>
#include <string_view>

#include "base/file.h"
#include "comm/communicator.h"
#include "observe/trace.h"
#include "train/rank.h"

namespace quintet::train {

// 1-based steps, as in metrics.jsonl; both ends inclusive.
struct TraceRange {
  int64_t first = 0, last = 0;
  bool contains(int64_t step) const { return first <= step && step <= last; }
};

// "steps=5-6" or "steps=5"; anything else is a UserError.
TraceRange parse_trace_range(std::string_view text);

// An empty trace with the streams of the rank's program and space reserved for `steps` steps.
observe::RankTrace make_trace(const Rank& rank, base::RankId id, int64_t steps);

// Collective. Gathers the events of all ranks on rank 0, which writes the file.
void write_gathered_trace(const observe::RankTrace& trace, comm::World& world, const base::Path& path);

}  // namespace quintet::train
