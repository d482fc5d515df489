#include "train/end_messages.h"

#include <fmt/format.h>

#include <cmath>

namespace quintet::train {
namespace {

bool evaluates_finite(const Summary& s) {
  return s.evaluations.empty() || std::isfinite(s.evaluations.back().loss);
}

}  // namespace

std::string skipped_message(const StepResult& step, int64_t number, int64_t limit) {
  if (step.spike)
    return fmt::format(
        "stopped at step {}: {} consecutive steps were skipped (run.max_skipped_steps = {}), the last for a "
        "loss of {:.4f} or a gradient norm of {:.3f} above the limits of run.skip_spike; the weights are "
        "those of the last good step. Try a larger run.skip_spike.factor or a lower optimizer.lr",
        number, step.skipped_in_row, limit, step.loss, step.grad_norm);
  return fmt::format(
      "stopped at step {}: {} consecutive step{} had a non-finite loss or gradient (run.max_skipped_steps = "
      "{}); the weights are those of the last good step. Try a lower optimizer.lr or a longer warm-up",
      number, step.skipped_in_row, step.skipped_in_row == 1 ? "" : "s", limit);
}

bool is_finite(const Summary& s) {
  return std::isfinite(s.last_loss) && evaluates_finite(s) && s.skipped_steps < s.steps;
}

std::string non_finite_message(const Summary& s) {
  return fmt::format(
      "the run ended without a finite result: {} of {} steps were skipped and the last loss is {}{}. Try a "
      "lower optimizer.lr or a longer warm-up",
      s.skipped_steps, s.steps, s.last_loss,
      evaluates_finite(s) ? "" : fmt::format(", on validation data {}", s.evaluations.back().loss));
}

}  // namespace quintet::train
