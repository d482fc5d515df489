#include "base/parallel_for.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

namespace quintet::base {
namespace {

TEST(ParallelFor, RunsEveryPieceOnce) {
  for (const int threads : {1, 2, 5})
    for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{100}}) {
      std::vector<std::atomic<int>> runs(count);
      parallel_for(threads, count, [&](size_t i) { ++runs[i]; });
      for (const auto& n : runs) EXPECT_EQ(n, 1);
    }
}

TEST(ParallelFor, RethrowsAndStartsNothingMore) {
  for (const int threads : {1, 3}) {
    std::atomic<int> begun{0};
    try {
      parallel_for(threads, 1000000, [&](size_t i) {
        ++begun;
        if (i == 4) throw std::runtime_error("piece " + std::to_string(i));
      });
      FAIL() << "nothing thrown";
    } catch (const std::runtime_error& e) {
      EXPECT_STREQ(e.what(), "piece 4");
    }
    if (threads == 1) {
      EXPECT_EQ(begun, 5);
    }
  }
}

}  // namespace
}  // namespace quintet::base
