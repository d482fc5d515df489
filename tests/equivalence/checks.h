// Shared by the named tests of layouts.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "equivalence/random_layout.h"
#include "tools/verify.h"

namespace quintet::tests {

// Every number of the layout equals that of one rank.
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

// The norm that clipping uses, against the norm of the gradients gathered from all ranks.
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

inline void expect_same(const std::vector<tools::Tensor>& a, const std::vector<tools::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].values == b[i].values) << a[i].name;
}

// Losses, norms, gradients, weights and moments of two runs.
inline void expect_same_bits(const tools::LayoutRun& a, const tools::LayoutRun& b) {
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t t = 0; t < a.steps.size(); ++t) {
    EXPECT_EQ(a.steps[t].result.loss, b.steps[t].result.loss);
    EXPECT_EQ(a.steps[t].result.grad_norm, b.steps[t].result.grad_norm);
    expect_same(a.steps[t].gradients, b.steps[t].gradients);
    expect_same(a.steps[t].weights, b.steps[t].weights);
  }
  ASSERT_EQ(a.moments.size(), b.moments.size());
  for (size_t k = 0; k < a.moments.size(); ++k) expect_same(a.moments[k].tensors, b.moments[k].tensors);
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
