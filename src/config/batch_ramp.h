// The batch size over a run: batch.ramp's stages, then batch.global. Every stage has whole steps, and the
// first step of a stage continues with the sequence after the last one of the stage before, so no sequence is
// skipped or repeated.
#pragma once

#include <string>
#include <vector>

#include "config/recipe.h"

namespace quintet::config {

// What a run has consumed.
struct RunPoint {
  int64_t steps = 0, sequences = 0, tokens = 0;
  double in(Length::Unit unit) const;  // not of a fraction
};

class BatchRamp {
 public:
  // Of a recipe whose batch sizes are derived and whose numbers are within their limits. A stage that ends
  // before it begins has no steps.
  explicit BatchRamp(const Recipe& recipe);

  struct Stage {
    int64_t first_step = 0;      // 0-based
    int64_t first_sequence = 0;  // consumed before it
    int64_t global = 0, accumulation = 0;
  };
  // In order; the last one is batch.global and has no end. Stages may begin after the end of the run.
  const std::vector<Stage>& stages() const { return stages_; }
  const Stage& at(int64_t step) const;
  // When `steps` steps are done, and when the run is.
  RunPoint after(int64_t steps) const;
  const RunPoint& end() const { return end_; }
  // The first number of steps after which at least `length` is consumed.
  int64_t steps_until(const Length& length) const;

 private:
  int64_t seq_len_ = 1, run_steps_ = 0;
  std::vector<Stage> stages_;
  RunPoint end_;
};

// "4 sequences from step 1, 8 from step 3; 36 in all": the stages that the run reaches.
std::string ramp_text(const Recipe& recipe);

// The micro-batches per step that stages of the run have, without batch.accumulation; each once, in order.
std::vector<int64_t> smaller_accumulations(const Recipe& recipe);

// The micro-batches of the small batch of run.noise_scale_every.
int64_t noise_accumulation(const Recipe& recipe);

}  // namespace quintet::config
