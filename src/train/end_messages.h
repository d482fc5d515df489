// Why a run ended without a result.
#pragma once

#include <string>

#include "train/rank.h"
#include "train/run_folder.h"

namespace quintet::train {

// Too many steps in a row were skipped, the last of them `number`; `limit` is run.max_skipped_steps.
std::string skipped_message(const StepResult& step, int64_t number, int64_t limit);

// Consecutive steps up to this one without a finite loss or gradient. An overflow that a dynamic loss scale
// answers does not count.
int64_t non_finite_in_row(const StepResult& step, const config::Recipe& recipe);

// Whether the last losses and gradients are numbers, and some step has changed the weights.
bool is_finite(const Summary& summary);
std::string non_finite_message(const Summary& summary);

}  // namespace quintet::train
