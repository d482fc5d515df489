// How far a plan's tokens/s may be from what runs: the errors of plans of published runs that the terms were
// not fitted on (docs/benchmarks/reference-runs.md). A statement about runs of that table, not a guarantee.
#pragma once

#include <span>
#include <string_view>

#include "plan/plan.h"

namespace quintet::plan {

struct Confidence {
  double median = 0, nine_in_ten = 0;  // of |predicted / published - 1|
  int rows = 0;
  std::string_view basis;  // which runs: "dense models, software in the table"
};

// Of plans with this software stack. Software that the table knows has terms of its own; without them a plan
// is as good as for software that was left out of the fit.
const Confidence& confidence(const config::Recipe& recipe, const hardware::Stack& stack);

// Factors on a plan's tokens/s between which nine in ten runs would be, if they are as those of the table; no
// run exceeds the peak of its devices.
struct Band {
  double least = 1, most = 1;
};
Band band_of(const Report& report);

// All of them, for tests.
std::span<const Confidence> confidences();

}  // namespace quintet::plan
