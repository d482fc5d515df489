// What a run shows while it trains: on a terminal one live line, in a pipe plain lines, at most one every n
// steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "observe/console.h"

namespace quintet::observe {

struct StepReport {
  int64_t step = 0;  // steps done, counted from the start of training: the first report of a fresh run says 1
  double loss = 0;
  double tokens_per_s = 0;
  double grad_norm = 0;
  double lr = 0;
  double load = 0;  // of the busiest expert, as a multiple of the mean; 0: there are no experts
};

class Progress {
 public:
  struct Options {
    int64_t total_steps = 0;  // where the run ends
    int64_t done_before = 0;  // steps that an earlier run did; time left is judged by this run's steps only
    int64_t every = 10;       // in a pipe: one line every n steps, and always the first and the last
    int64_t (*now_ns)() = base::now_ns;
  };
  Progress(Console& console, Options options);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(const StepReport& report);
  void finish();  // leaves the last line standing; further calls do nothing

 private:
  std::vector<std::string> fields(const StepReport& report) const;  // most important first
  Console& console_;
  const Options options_;
  const int64_t start_ns_;
  bool finished_ = false;
};

// The fields joined by two spaces, as many from the front as fit into `width` columns (0: all); the first is
// always kept.
std::string fit_fields(const std::vector<std::string>& fields, int width);

}  // namespace quintet::observe
