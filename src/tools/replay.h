// `quintet replay`: a past step of a run executed again, from the newest checkpoint before it.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"

namespace quintet::tools {

struct ReplayedNumber {
  std::string name;  // as in metrics.jsonl
  double now = 0, recorded = 0;
  bool is_equal() const { return now == recorded || (std::isnan(now) && std::isnan(recorded)); }
};

struct Replay {
  int64_t step = 0, from = 0;  // from: the step of the checkpoint; 0: the start of the run
  std::vector<ReplayedNumber> numbers;
  bool is_equal() const;
};

// Runs the steps after the checkpoint up to `step`, with ranks as threads of this process, in a folder below
// the run's that is removed afterwards. UserError when the run has no record of the step.
Replay replay(const base::Path& run_folder, int64_t step,
              const std::function<void(int64_t step, double loss)>& on_step = {});

std::string to_text(const Replay& replay);
std::string to_json(const Replay& replay);

}  // namespace quintet::tools
