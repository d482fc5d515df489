#include "device/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"

namespace quintet::device {
namespace {

struct Range {
  int64_t b = -1, e = -1;
  int calls = 0;
};

std::vector<Range> ranges(ThreadPool& pool, int64_t begin, int64_t end, int64_t grain) {
  std::vector<Range> out(static_cast<size_t>(pool.threads()));
  pool.parallel_for(begin, end, grain, [&](int64_t b, int64_t e, int worker) {
    Range& r = out[static_cast<size_t>(worker)];
    r.b = b, r.e = e, r.calls++;
  });
  return out;
}

TEST(ThreadPool, RangesCoverOnceInOrderAndRespectTheGrain) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    for (int64_t grain : {1, 3, 7, 100})
      for (int64_t size : {0, 1, 2, 3, 6, 7, 20, 21, 101}) {
        const int64_t begin = 5, end = begin + size;
        int64_t next = begin;
        for (const Range& r : ranges(pool, begin, end, grain)) {
          if (r.calls == 0) continue;
          EXPECT_EQ(r.calls, 1);
          EXPECT_EQ(r.b, next);
          EXPECT_LT(r.b, r.e);
          EXPECT_TRUE(r.e == end || (r.e - r.b) % grain == 0);
          next = r.e;
        }
        EXPECT_EQ(next, end) << threads << " threads, grain " << grain << ", size " << size;
      }
  }
}

TEST(ThreadPool, EveryThreadTakesPartWhenThereIsWork) {
  ThreadPool pool(4);
  for (const Range& r : ranges(pool, 0, 4, 1)) EXPECT_EQ(r.calls, 1);
  std::vector<std::thread::id> ids(4);
  pool.parallel_for(
      0, 4, 1, [&](int64_t, int64_t, int w) { ids[static_cast<size_t>(w)] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < i; ++j) EXPECT_NE(ids[i], ids[j]);
}

TEST(ThreadPool, WritesAreVisibleAfterEachOfManyLoops) {
  ThreadPool pool(3);
  std::vector<int64_t> values(1000, 0);
  for (int round = 1; round <= 5000; ++round) {
    // Sizes change so that some workers sit out some rounds.
    const int64_t size = round % 4 == 0 ? 1000 : round % 4;
    pool.parallel_for(0, size, 1, [&](int64_t b, int64_t e, int) {
      for (int64_t i = b; i < e; ++i) values[static_cast<size_t>(i)]++;
    });
  }
  EXPECT_EQ(values[0], 5000);
  EXPECT_EQ(values[1], 3750);
  EXPECT_EQ(values[2], 2500);
  EXPECT_EQ(values[3], 1250);
  EXPECT_EQ(values[999], 1250);
}

TEST(ThreadPool, WakesAfterAPause) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    int64_t parts[2] = {0, 0};
    pool.parallel_for(0, 2, 1, [&](int64_t b, int64_t, int) { parts[b] = 1; });
    EXPECT_EQ(parts[0] + parts[1], 2);
  }
}

TEST(ThreadPool, IdlePoolsUseNoProcessorTime) {
  ThreadPool a(3), b(3);
  ranges(a, 0, 3, 1), ranges(b, 0, 3, 1);
  const auto used = [] {
    rusage u{};
    getrusage(RUSAGE_SELF, &u);
    return double(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * double(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // Processor time, not wall time: four spinning workers would use hundreds of milliseconds on any machine.
  EXPECT_LT(used() - before, 0.05);
}

TEST(ThreadPool, ExceptionOfTheLowestWorkerComesOut) {
  ThreadPool pool(3);
  const auto fail_from = [&](int first) {
    pool.parallel_for(0, 3, 1, [&](int64_t, int64_t, int w) {
      if (w >= first) throw base::UserError("worker " + std::to_string(w));
    });
  };
  for (int first : {0, 1, 2}) {
    try {
      fail_from(first);
      FAIL() << "no exception";
    } catch (const base::UserError& e) {
      EXPECT_EQ(std::string(e.what()), "worker " + std::to_string(first));
    }
  }
  for (const Range& r : ranges(pool, 0, 3, 1)) EXPECT_EQ(r.calls, 1);  // The pool still works.
}

TEST(ThreadPool, RefusesToBeUsedFromInside) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.parallel_for(0, 2, 1,
                                 [&](int64_t, int64_t, int w) {
                                   if (w == 0) pool.parallel_for(0, 2, 1, [](int64_t, int64_t, int) {});
                                 }),
               base::InternalError);
  EXPECT_THROW(ThreadPool(0), base::InternalError);
}

}  // namespace
}  // namespace quintet::device
