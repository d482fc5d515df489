// Why a run ended without a result.
#pragma once

#include <string>

#include "train/rank.h"
#include "train/run_folder.h"

namespace quintet::train {

// Too many steps in a row were skipped, the last of them `number`; `limit` is run.max_skipped_steps.
std::string skipped_message(const StepResult& step, int64_t number, int64_t limit);

// Whether the last losses are numbers, and some step has changed the weights.
bool is_finite(const Summary& summary);
std::string non_finite_message(const Summary& summary);

}  // namespace quintet::train
