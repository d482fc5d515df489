// run.skip_spike: limits of loss and gradient norm, from the steps that were accepted before.
#pragma once

#include <deque>

#include "config/recipe.h"

namespace quintet::train {

// Every rank has one and feeds it the same reduced numbers, so all ranks set the same limits.
class SpikeGuard {
 public:
  explicit SpikeGuard(const config::SkipSpike& settings) : settings_(settings) {}

  bool is_on() const { return settings_.window > 0; }

  // Of 0-based step `step`: mean + factor x deviation of the last `window` accepted steps before step - 1,
  // infinite as long as there are fewer. The step directly before is left out because it may still be in
  // flight when this one is queued; so limits do not depend on whether it is.
  struct Limits {
    double loss, norm;
  };
  Limits limits(int64_t step);
  // A finished step that was not skipped.
  void accept(int64_t step, double loss, double norm);

  struct Accepted {
    int64_t step;
    double loss, norm;
  };
  // The steps that limits depend on, oldest first, for saving and continuing.
  const std::deque<Accepted>& recent() const { return recent_; }
  void restore(std::deque<Accepted> recent) { recent_ = std::move(recent); }

 private:
  const config::SkipSpike settings_;
  std::deque<Accepted> recent_;  // at most the window and the step after it
};

}  // namespace quintet::train
