#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "config/names.h"
#include "support/folders.h"

namespace quintet::optim {
namespace {

using config::Length;
using config::RunPoint;
using Unit = config::Length::Unit;

nlohmann::json golden(const char* list) {
  std::ifstream file(test::source_dir() + "/tests/golden/schedules.json");
  return nlohmann::json::parse(file).at(list);
}

config::Optimizer optimizer_of(const nlohmann::json& c, Unit unit, double per_step) {
  config::Optimizer o;
  o.lr = 2.0;
  o.schedule.kind = *config::value_of<config::ScheduleKind>(c.at("kind").get<std::string>());
  o.schedule.warmup = {unit, c.at("warmup").get<double>() * per_step};
  o.schedule.decay = {unit, c.at("decay").get<double>() * per_step};
  o.schedule.min_lr_ratio = c.at("min_lr_ratio");
  if (c.contains("shape"))
    o.schedule.shape = *config::value_of<config::DecayShape>(c.at("shape").get<std::string>());
  return o;
}

// Every shape, in steps and in tokens, against tests/golden/make_schedules.py.
TEST(Schedule, RatesAreTheReferences) {
  for (const nlohmann::json& c : golden("rates"))
    for (const Unit unit : {Unit::Steps, Unit::Tokens, Unit::Sequences}) {
      SCOPED_TRACE(c.dump());
      const int64_t batch = 3, seq_len = 16;
      const auto point = [&](int64_t steps) {
        return RunPoint{steps, steps * batch, steps * batch * seq_len};
      };
      const config::Optimizer o = optimizer_of(c, unit, point(1).in(unit));
      const std::vector<double> values = c.at("values");
      const RunPoint end = point(static_cast<int64_t>(values.size()));
      for (size_t s = 0; s < values.size(); ++s)
        EXPECT_NEAR(learning_rate(o, point(static_cast<int64_t>(s) + 1), end), 2.0 * values[s], 1e-14) << s;
    }
}

TEST(Schedule, WeightDecayRampsAreTheReferences) {
  for (const nlohmann::json& c : golden("weight_decay_ramps")) {
    SCOPED_TRACE(c.dump());
    config::Optimizer o;
    o.weight_decay_ramp = {*config::value_of<config::RampKind>(c.at("kind").get<std::string>()),
                           c.at("start_ratio"), c.at("final_ratio")};
    const std::vector<double> values = c.at("values");
    const RunPoint end{.steps = static_cast<int64_t>(values.size())};
    for (size_t s = 0; s < values.size(); ++s)
      EXPECT_NEAR(weight_decay_ratio(o, {.steps = static_cast<int64_t>(s) + 1}, end), values[s], 1e-14) << s;
  }
}

TEST(Schedule, RatesFollowTheBatch) {
  using config::LrScalingRule;
  EXPECT_EQ(batch_factor({}, 64), 1);
  EXPECT_EQ(batch_factor({LrScalingRule::Linear, 256}, 64), 0.25);
  EXPECT_EQ(batch_factor({LrScalingRule::Sqrt, 256}, 64), 0.5);
  EXPECT_EQ(batch_factor({LrScalingRule::Sqrt, 256}, 1024), 2);
  EXPECT_EQ(batch_factor({LrScalingRule::Linear, 256}, 256), 1);
}

// Whatever the phases, the last step has the floor and no step after it leaves it.
TEST(Schedule, TheLastStepHasTheFloor) {
  using config::ScheduleKind;
  for (const ScheduleKind kind : {ScheduleKind::Linear, ScheduleKind::Cosine, ScheduleKind::Wsd})
    for (const int64_t steps : {2, 9, 19, 100}) {
      config::Recipe r;
      r.data.seq_len = 8;
      r.batch = {.global = 4, .micro = 1, .accumulation = 4};
      r.run.steps = steps;
      const config::BatchRamp ramp(r);
      config::Optimizer o;
      o.lr = 1.0;
      o.schedule = {.kind = kind, .warmup = {Unit::Steps, 1}, .min_lr_ratio = 0.1};
      o.schedule.decay = {
          Unit::Steps,
          static_cast<double>(kind == ScheduleKind::Wsd ? std::max<int64_t>(1, steps / 10) : steps - 1)};
      EXPECT_DOUBLE_EQ(learning_rate(o, ramp.after(steps), ramp.end()), 0.1) << steps;
      EXPECT_DOUBLE_EQ(learning_rate(o, ramp.after(steps + 5), ramp.end()), 0.1) << steps;
      EXPECT_DOUBLE_EQ(learning_rate(o, ramp.after(1), ramp.end()), 1.0) << "the end of the warm-up";
    }
}

}  // namespace
}  // namespace quintet::optim
