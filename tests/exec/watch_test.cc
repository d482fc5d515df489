#include "exec/watch.h"

#include <gtest/gtest.h>

#include <atomic>

namespace quintet::exec {
namespace {

TEST(Watch, IsSilentWhenTheWorkEnds) {
  std::atomic<int> calls = 0;
  {
    const Watch watch(std::chrono::hours(1), [&] { ++calls; });
  }
  EXPECT_EQ(calls, 0);
}

TEST(Watch, CallsOnceWhenTheWorkIsLate) {
  std::atomic<int> calls = 0;
  {
    const Watch watch(std::chrono::milliseconds(1), [&] {
      ++calls;
      calls.notify_all();
    });
    calls.wait(0);
  }
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace quintet::exec
