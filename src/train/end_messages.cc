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

int64_t non_finite_in_row(const StepResult& step, const config::Recipe& recipe) {
  const bool overflow = recipe.precision.loss_scale.dynamic && std::isfinite(step.loss);
  return step.skipped && !step.spike && !overflow ? step.skipped_in_row : 0;
}

bool is_finite(const Summary& s) {
  return std::isfinite(s.last_loss) && evaluates_finite(s) && s.skipped_steps < s.steps &&
         s.non_finite_at_end == 0;
}

std::string non_finite_message(const Summary& s) {
  if (std::isfinite(s.last_loss) && evaluates_finite(s) && s.non_finite_at_end > 0)
    return fmt::format(
        "the run ended without a finite result: {} had a non-finite gradient and changed no weights. Try a "
        "lower optimizer.lr or a longer warm-up",
        s.non_finite_at_end == 1 ? std::string("the last step")
                                 : fmt::format("the last {} steps", s.non_finite_at_end));
  return fmt::format(
      "the run ended without a finite result: {} of {} steps were skipped and the last loss is {}{}. Try a "
      "lower optimizer.lr or a longer warm-up",
      s.skipped_steps, s.steps, s.last_loss,
      evaluates_finite(s) ? "" : fmt::format(", on validation data {}", s.evaluations.back().loss));
}

}  // namespace quintet::train
