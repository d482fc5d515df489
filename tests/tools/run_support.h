// Runs of small recipes that are stopped, changed and compared.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "train/support.h"

namespace quintet::test {

// Settings of a recipe, as --set takes them.
using Sets = std::vector<std::string>;

inline Sets operator+(Sets a, const Sets& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline train::RunOptions stopped_after(int64_t step) {
  auto done = std::make_shared<std::atomic<bool>>(false);
  train::RunOptions options;
  options.on_step = [=](int64_t number, const train::StepResult&) { *done = number >= step; };
  options.interrupted = [=] { return *done ? 15 : 0; };
  return options;
}

inline void expect_equal_losses(const SmallRun& a, const SmallRun& b) {
  const auto x = read_metrics(a.run_folder().metrics()), y = read_metrics(b.run_folder().metrics());
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(x[i].at("loss").get<double>(), y[i].at("loss").get<double>(), 1e-10) << i;
    EXPECT_EQ(x[i].at("tokens"), y[i].at("tokens"));
  }
}

}  // namespace quintet::test
