#include "base/clock.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

namespace quintet::base {
namespace {

// The age increases with the clock, and no process is older than its machine.
TEST(Clock, ProcessAgeIsOfThisProcess) {
  const int64_t begin = now_ns(), age = process_age_ns();
  double uptime = 0;
  std::ifstream("/proc/uptime") >> uptime;
  EXPECT_GT(uptime, 0);
  EXPECT_GE(age, 0);
  EXPECT_LT(static_cast<double>(age) * 1e-9, uptime + 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int64_t later = process_age_ns(), end = now_ns();
  EXPECT_GE(later - age, 50'000'000);
  EXPECT_LE(later - age, end - begin + 1'000'000'000);
}

}  // namespace
}  // namespace quintet::base
