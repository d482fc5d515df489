#include "checkpoint/background.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/clock.h"
#include "base/error.h"

namespace quintet::checkpoint {
namespace {

TEST(Background, RunsOneJobAndReportsItsFailureOnce) {
  Background background;
  EXPECT_TRUE(background.is_done());
  std::atomic<bool> go = false;
  background.start([&] { go.wait(false); });
  EXPECT_FALSE(background.is_done());
  EXPECT_THROW(background.start([] {}), base::InternalError) << "one at a time";
  go = true;
  go.notify_all();
  background.wait();
  EXPECT_TRUE(background.is_done());
  background.start([] { base::fail_user("full"); });
  EXPECT_THROW(background.wait(), base::UserError);
  EXPECT_FALSE(background.has_failed());
  background.wait();
  background.start([] {});
}

TEST(Background, TheRateIsLimited) {
  const int64_t begin = base::now_ns();
  RateLimit limit(1e6);
  for (int i = 0; i < 5; ++i) limit.written(10'000);
  EXPECT_GE(base::now_ns() - begin, 45'000'000);
  EXPECT_GE(limit.slept_seconds(), 0.02);
  RateLimit(0).written(int64_t{1} << 60);
}

// A limit of a byte per second is lifted while a write of 100 waits for it.
TEST(Background, ARateIsLiftedWhileAWriteWaits) {
  double now = 0;
  bool lifted = false;
  RateLimit limit(1,
                  {.now_ns = [&] { return static_cast<int64_t>(now * 1e9); },
                   .sleep =
                       [&](double seconds) {
                         EXPECT_LE(seconds, RateLimit::kMostSlept);
                         now += seconds;
                         lifted = now >= 3;
                       }},
                  [&] { return lifted; });
  limit.written(2);
  EXPECT_NEAR(now, 2, 1e-6);
  limit.written(98);
  EXPECT_NEAR(now, 3, 0.2);
  EXPECT_NEAR(limit.slept_seconds(), now, 1e-6);
  limit.written(int64_t{1} << 40);
  EXPECT_NEAR(now, 3, 0.2) << "no further sleep";
}

}  // namespace
}  // namespace quintet::checkpoint
