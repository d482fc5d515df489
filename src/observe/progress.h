// Progress output of a training run: a line every n steps, and below them on a terminal a live line for every
// step. Both always show the time left.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "observe/console.h"

namespace quintet::observe {

struct StepReport {
  int64_t step = 0;  // 1-based, counted from the start of training
  double loss = 0;
  double tokens_per_s = 0;
  double grad_norm = 0;
  double lr = 0;
  double load = 0;  // of the busiest expert, relative to the mean; 0: the model has no experts
};

class Progress {
 public:
  struct Options {
    int64_t total_steps = 0;  // step at which the run ends
    int64_t done_before = 0;  // steps done by an earlier run; the remaining time is estimated without them
    int64_t every = 10;       // one line every n steps, plus the first and the last
    int64_t (*now_ns)() = base::now_ns;
  };
  Progress(Console& console, Options options);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const StepReport& report);
  void finish();  // removes the live line, and prints the last step unless it has a line; then does nothing

 private:
  // Most important first, but for the time left, which is last.
  std::vector<std::string> fields(const StepReport& report) const;
  std::string bar(int64_t step) const;
  std::string time_left(const StepReport& report) const;
  void keep(const StepReport& report);
  Console& console_;
  const Options options_;
  const int64_t start_ns_;
  StepReport last_;
  bool kept_ = true;  // the last step has a line
  bool finished_ = false;
};

// Joins fields with two spaces: the first and the last, and between them as many as fit into `width` columns
// (0: all).
std::string fit_fields(const std::vector<std::string>& fields, int width);

}  // namespace quintet::observe
