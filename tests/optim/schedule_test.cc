#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quintet::optim {
namespace {

config::Optimizer make(config::ScheduleKind kind, int64_t warmup, int64_t decay, double floor) {
  config::Optimizer o;
  o.lr = 2.0;
  o.schedule = {.kind = kind, .warmup = warmup, .min_lr_ratio = floor, .decay = decay};
  return o;
}

TEST(Schedule, WarmUpReachesTheFullRateAtItsLastStep) {
  const auto o = make(config::ScheduleKind::Constant, 4, 0, 0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 10), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 3, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 9, 10), 2.0);
}

TEST(Schedule, LinearFallsToTheFloorAndStaysThere) {
  const auto o = make(config::ScheduleKind::Linear, 2, 8, 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(o, 2, 10), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 6, 10), 2.0 * (0.25 + 0.75 * 0.5));
  EXPECT_DOUBLE_EQ(learning_rate(o, 10, 10), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(o, 100, 10), 0.5);
}

TEST(Schedule, CosineIsHalfWayInTheMiddle) {
  const auto o = make(config::ScheduleKind::Cosine, 0, 10, 0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 10), 2.0);
  EXPECT_NEAR(learning_rate(o, 5, 10), 1.0, 1e-15);
  EXPECT_NEAR(learning_rate(o, 10, 10), 0.0, 1e-15);
}

TEST(Schedule, InverseSquareRootIsContinuousWithTheWarmUp) {
  const auto o = make(config::ScheduleKind::InverseSqrt, 4, 0, 0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 3, 100), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 15, 100), 1.0);
}

TEST(Schedule, WsdHoldsThenDecaysAtTheEnd) {
  const auto o = make(config::ScheduleKind::Wsd, 2, 4, 0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 15, 20), 2.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 18, 20), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(o, 20, 20), 0.0);
}

}  // namespace
}  // namespace quintet::optim
