// What named tests of layouts have in common.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "equivalence/random_layout.h"
#include "tools/verify.h"

namespace quintet::tests {

// Every number of the layout is that of one rank.
inline void expect_equal(const config::Recipe& recipe, data::LabelMask mask = {}, int64_t steps = 2) {
  const tools::VerifyResult r =
      tools::verify(recipe, {.steps = steps, .synthetic = true, .mask = std::move(mask)});
  EXPECT_TRUE(r.pass()) << tools::to_table(r);
}

inline tools::LayoutRun run(const config::Recipe& recipe, const data::Dataset& dataset,
                            data::LabelMask mask = {}, int64_t steps = 2) {
  return tools::run_layout(recipe, tools::training_batches(recipe, dataset, std::move(mask)),
                           {.steps = steps});
}

// The norm that clipping uses, against the norm of the gradients put together from all ranks.
inline void expect_norm_counts_once(const config::Recipe& r) {
  const tools::LayoutRun layout = run(r, tools::training_data(r, true));
  for (const tools::StepState& s : layout.steps) {
    double sum = 0;
    for (const tools::Tensor& t : s.gradients)
      for (const double g : t.values) sum += g * g;
    EXPECT_NEAR(s.result.grad_norm, std::sqrt(sum), 1e-12 * std::sqrt(sum)) << tools::describe(r.parallel);
  }
  expect_equal(r);
}

// Only this label counts.
inline data::LabelMask only(int64_t sequence, int64_t position) {
  return [=](const data::LabelSite& s) { return s.sequence == sequence && s.position == position; };
}

inline const std::vector<double>& values_of(const std::vector<tools::Tensor>& list, const std::string& name) {
  for (const tools::Tensor& t : list)
    if (t.name == name) return t.values;
  throw std::runtime_error("no tensor " + name);
}

}  // namespace quintet::tests
