// Plans published runs with several sets of terms at once, for fitting (tools/fit_stacks.py). Programs do not
// depend on terms, so each row is compiled once and simulated with every set.
#pragma once

#include <string>
#include <vector>

#include "hardware/terms.h"
#include "published/comparison.h"

namespace quintet::published {

struct TermsComparison {
  std::vector<ComparedRun> rows;
  std::vector<std::string> sets;
  // Seconds per step, and tokens/s per device, by row and set; 0: not modelled, or not requested (Terms::only
  // lists row ids).
  std::vector<std::vector<double>> seconds, predicted;
};
TermsComparison compare_terms(const std::vector<PublishedRun>& runs, const std::vector<hardware::Terms>& sets,
                              const CompareOptions& options);

std::string to_json(const TermsComparison& report);

}  // namespace quintet::published
