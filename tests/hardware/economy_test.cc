// Money, energy and goodput; the closed form of goodput against a simulation of failures (PL-12).
#include "hardware/economy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"

namespace quintet::hardware {
namespace {

TEST(Economy, HoursMoneyEnergyCarbon) {
  const Cluster c = parse_cluster("4x8 h100, price 2.5, pue 1.25, carbon 0.4");
  // 1e9 tokens at 1e5 a second on 32 devices: 1e4 s.
  const RunCost cost = cost_of_tokens(1e9, 1e5, c);
  EXPECT_DOUBLE_EQ(cost.seconds, 1e4);
  EXPECT_DOUBLE_EQ(cost.device_hours, 1e4 * 32 / 3600);
  EXPECT_DOUBLE_EQ(cost.usd, 2.5 * cost.device_hours);
  EXPECT_DOUBLE_EQ(cost.kwh, cost.device_hours * 1.275 * 1.25);
  EXPECT_DOUBLE_EQ(cost.co2_kg, 0.4 * cost.kwh);
  EXPECT_THROW(cost_of_tokens(1e9, 0, c), base::UserError);
  EXPECT_THROW(cost_of_tokens(1e9, NAN, c), base::UserError);
  EXPECT_EQ(cost_of_tokens(1e9, 1, parse_cluster("8 gaudi-3")).usd, 0);  // no price is known
}

TEST(Economy, ClaimsAboveThePeakAreRefused) {
  const Accelerator& h100 = find_accelerator("h100");
  EXPECT_NEAR(share_of_peak(400e12, h100, Arithmetic::BF16, "a run"), 0.404, 0.001);
  try {
    share_of_peak(1979e12, h100, Arithmetic::BF16, "the leaflet's rate");
    FAIL() << "a sparse peak was taken for dense";
  } catch (const base::UserError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("the leaflet's rate"), std::string::npos);
    EXPECT_NE(what.find("200 %"), std::string::npos);
    EXPECT_NE(what.find("989.4"), std::string::npos);
  }
  EXPECT_THROW(share_of_peak(1, h100, Arithmetic::FP4, "a run"), base::UserError);
}

TEST(Goodput, Limits) {
  EXPECT_EQ(goodput({.failures_per_device_hour = 0}, 1000).share, 1);
  EXPECT_NEAR(goodput({.failures_per_device_hour = 0, .checkpoint_seconds = 10}, 1000, 90).share, 0.9, 1e-12);
  // Free checkpoints: only restarts are lost.
  const Goodput free =
      goodput({.failures_per_device_hour = 1e-3, .checkpoint_seconds = 0, .restart_seconds = 36}, 100);
  EXPECT_NEAR(free.share, std::exp(-0.001), 1e-12);
  EXPECT_NEAR(free.failures_per_day, 2.4, 1e-12);
  // A job that cannot finish an interval before the next failure.
  EXPECT_LT(goodput({.failures_per_device_hour = 1}, 100000, 3600).share, 1e-6);
  EXPECT_THROW(goodput({.checkpoint_seconds = -1}, 8), base::UserError);
  EXPECT_THROW(goodput({}, 0), base::UserError);
}

TEST(Goodput, TheBestIntervalIsTheBest) {
  for (const double checkpoint : {1., 30., 300.})
    for (const int devices : {8, 1024, 16384, 100000}) {
      const Reliability r{.checkpoint_seconds = checkpoint, .restart_seconds = 300};
      const Goodput best = goodput(r, devices);
      EXPECT_GT(best.interval_seconds, 0);
      for (const double factor : {0.25, 0.5, 0.9, 0.99, 1.01, 1.1, 2., 4.})
        EXPECT_GE(best.share, goodput(r, devices, factor * best.interval_seconds).share)
            << checkpoint << " " << devices;
      EXPECT_NEAR(best.share + best.checkpoint_share + best.lost_share, 1, 1e-12);
      // Daly's formula is close to it while checkpoints are short relative to failures, Young's not far off.
      const double mean = best.mean_between_failures_seconds;
      if (checkpoint < mean / 10) {
        EXPECT_NEAR(daly_interval(checkpoint, mean), best.interval_seconds, 0.01 * best.interval_seconds);
        EXPECT_NEAR(young_interval(checkpoint, mean), best.interval_seconds, 0.2 * best.interval_seconds);
      }
    }
}

// Simulates failures: progress in intervals, each followed by a checkpoint; a failure returns to the last
// one, after a restart that may fail too.
double simulated_share(const Reliability& r, int devices, double interval, int stretches) {
  std::mt19937_64 random(20261115);
  std::exponential_distribution<double> gap(r.failures_per_device_hour * devices / 3600);
  double now = 0, failure = gap(random);
  const auto runs_through = [&](double seconds) {
    if (now + seconds <= failure) {
      now += seconds;
      return true;
    }
    now = failure;
    failure = now + gap(random);
    return false;
  };
  for (int done = 0; done < stretches;) {
    if (runs_through(interval + r.checkpoint_seconds)) {
      ++done;
      continue;
    }
    while (!runs_through(r.restart_seconds)) {
    }
  }
  return stretches * interval / now;
}

TEST(Goodput, MonteCarloAgrees) {
  const struct {
    Reliability r;
    int devices;
    double interval;  // 0: the best
  } cases[] = {
      {{}, 16384, 0},
      {{}, 16384, 3600},
      {{.checkpoint_seconds = 300, .restart_seconds = 1800}, 16384, 0},
      {{.failures_per_device_hour = 1e-4, .checkpoint_seconds = 60, .restart_seconds = 300}, 4096, 1200},
      {{.failures_per_device_hour = 1e-3, .checkpoint_seconds = 20, .restart_seconds = 900}, 2048, 0}};
  for (const auto& c : cases) {
    const Goodput expected = goodput(c.r, c.devices, c.interval);
    const double got = simulated_share(c.r, c.devices, expected.interval_seconds, 200000);
    // About 2 * 10^4 failures or more: a relative spread of 1 % is several standard deviations of what is
    // lost.
    EXPECT_NEAR(1 - got, 1 - expected.share, 0.03 * (1 - expected.share)) << c.devices << " " << c.interval;
  }
}

}  // namespace
}  // namespace quintet::hardware
