// metrics.jsonl of a run, which rank 0 writes: a record per step that is trained, also where a run goes on
// after a crash or goes back. A checkpoint says how many steps are done, so records are on disk before it is.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "observe/metrics.h"

namespace quintet::train {

class RunMetrics {
 public:
  explicit RunMetrics(base::Path path) : path_(std::move(path)) {}

  // Keeps the records of steps up to `step`, one for each, and opens the file.
  void open(int64_t step);
  // What cannot be written is missing: a full disk may have room again before the run ends, so the run
  // continues. Returns a warning the first time.
  std::string append(const observe::Record& record);
  // Adds keys to the record of a step, or replaces them.
  void amend(int64_t step, const observe::Record& more);
  // Flushes all records to disk. Any thread; a failure is reported by incomplete().
  void sync();
  // What is wrong with the file; empty: nothing.
  std::string incomplete() const;

 private:
  const base::Path path_;
  std::optional<observe::MetricsFile> file_;
  int64_t lost_records_ = 0;
  std::atomic<bool> is_named_ = false;  // the file's name is on disk
  std::atomic<bool> sync_failed_ = false;
};

// The step of the last complete record; 0: there is none.
int64_t last_recorded_step(const base::Path& path);

// What RunMetrics::open() and amend() do to the file. A missing one stays missing.
void truncate_metrics(const base::Path& path, int64_t step);
void amend_metrics(const base::Path& path, int64_t step, const observe::Record& more);

}  // namespace quintet::train
