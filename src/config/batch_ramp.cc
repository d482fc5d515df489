#include "config/batch_ramp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace quintet::config {
namespace {

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

double RunPoint::in(Length::Unit unit) const {
  switch (unit) {
    case Length::Unit::Sequences:
      return static_cast<double>(sequences);
    case Length::Unit::Tokens:
      return static_cast<double>(tokens);
    default:
      return static_cast<double>(steps);
  }
}

BatchRamp::BatchRamp(const Recipe& r)
    : seq_len_(std::max<int64_t>(1, r.data.seq_len)), run_steps_(r.run.steps) {
  const int64_t per_micro_batch = std::max<int64_t>(1, r.batch.micro * r.parallel.dp());
  const auto add = [&](int64_t step, int64_t sequence, int64_t global) {
    stages_.push_back({.first_step = step,
                       .first_sequence = sequence,
                       .global = global,
                       .accumulation = global / per_micro_batch});
  };
  int64_t step = 0, sequence = 0;
  for (const BatchStage& stage : r.batch.ramp) {
    add(step, sequence, std::max<int64_t>(1, stage.global));
    const int64_t ends = std::max(step, steps_until(stage.until));
    sequence += (ends - step) * stages_.back().global;
    step = ends;
  }
  add(step, sequence, std::max<int64_t>(1, r.batch.global));
  end_ = after(run_steps_);
}

const BatchRamp::Stage& BatchRamp::at(int64_t step) const {
  // A stage without steps begins where the next one does: the last of them counts.
  size_t i = stages_.size() - 1;
  while (i > 0 && stages_[i].first_step > step) --i;
  return stages_[i];
}

RunPoint BatchRamp::after(int64_t steps) const {
  const Stage& stage = at(std::max<int64_t>(0, steps - 1));
  const int64_t sequences = stage.first_sequence + (steps - stage.first_step) * stage.global;
  return {steps, sequences, sequences * seq_len_};
}

int64_t BatchRamp::steps_until(const Length& length) const {
  using Unit = Length::Unit;
  if (length.unit == Unit::Steps) return static_cast<int64_t>(length.value);
  if (length.unit == Unit::Fraction) return std::llround(length.value * static_cast<double>(run_steps_));
  const auto count = static_cast<int64_t>(length.value);
  const int64_t sequences = length.unit == Unit::Tokens ? divide_up(count, seq_len_) : count;
  size_t i = stages_.size() - 1;
  while (i > 0 && stages_[i].first_sequence >= sequences) --i;
  const Stage& s = stages_[i];
  return s.first_step + divide_up(std::max<int64_t>(0, sequences - s.first_sequence), s.global);
}

std::string ramp_text(const Recipe& recipe) {
  const BatchRamp ramp(recipe);
  std::string text;
  for (const BatchRamp::Stage& s : ramp.stages())
    if (s.first_step < recipe.run.steps)
      text += text.empty() ? fmt::format("{} sequences from step 1", base::thousands(s.global))
                           : fmt::format(", {} from step {}", base::thousands(s.global),
                                         base::thousands(s.first_step + 1));
  return text + fmt::format("; {} in all", base::thousands(ramp.end().sequences));
}

std::vector<int64_t> smaller_accumulations(const Recipe& recipe) {
  std::vector<int64_t> list;
  const BatchRamp ramp(recipe);
  for (const BatchRamp::Stage& stage : ramp.stages())
    if (stage.first_step < recipe.run.steps && stage.accumulation != recipe.batch.accumulation &&
        std::find(list.begin(), list.end(), stage.accumulation) == list.end())
      list.push_back(stage.accumulation);
  return list;
}

int64_t noise_accumulation(const Recipe& recipe) {
  return recipe.run.noise_scale_batch / (recipe.batch.micro * recipe.parallel.dp());
}

}  // namespace quintet::config
