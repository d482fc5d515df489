// The evaluation of a run's weights on its validation sets.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "observe/metrics.h"
#include "train/rank.h"
#include "train/run_data.h"

namespace quintet::train {

struct EvaluationOfSets {
  double loss = 0;  // per token, over all sets
  int64_t tokens = 0;
  observe::Record record;          // for metrics.jsonl
  std::vector<std::string> lines;  // for the console, of single sets
};

// Collective. `stop` is called before every batch, on every rank the same number of times, and must give all
// ranks the same answer: true ends the evaluation, which then has no result. Empty: it is not called.
std::optional<EvaluationOfSets> evaluate_sets(Rank& rank, const RunData& data, const config::Recipe& recipe,
                                              const std::function<bool()>& stop);

}  // namespace quintet::train
