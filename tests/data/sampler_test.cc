#include "data/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace quintet::data {
namespace {

void expect_bijection(uint64_t key, uint64_t n) {
  const Permutation permutation(key, n);
  std::vector<bool> seen(n);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t to = permutation(i);
    ASSERT_LT(to, n);
    ASSERT_FALSE(seen[to]) << "n " << n << " key " << key << " hits " << to << " twice";
    seen[to] = true;
  }
}

TEST(Permutation, IsABijection) {
  for (uint64_t n = 1; n <= 300; ++n) expect_bijection(n * 7919, n);
  for (uint64_t key = 0; key < 50; ++key) expect_bijection(key, 5);
  for (const uint64_t n : {1023, 1024, 1025, 4095, 4097, 65535, 65536, 65537, 100'003})
    expect_bijection(42, n);
}

TEST(Permutation, WorksForSetsLargerThanMemory) {
  const uint64_t n = (uint64_t{1} << 61) + 12345;
  const Permutation permutation(3, n);
  std::map<uint64_t, int> seen;
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t to = permutation(n - 1 - i);
    ASSERT_LT(to, n);
    EXPECT_EQ(seen[to]++, 0);
  }
  EXPECT_THROW(permutation(n), base::InternalError);
  EXPECT_THROW(Permutation(3, 0), base::InternalError);
}

// Over many keys, each of the 6 permutations of 3 elements must occur about equally often: 1000 of 6000
// times, with a standard deviation of 29; 150 is five of them. The keys are fixed, so the result is too.
TEST(Permutation, SmallSetsTakeEveryOrderEquallyOften) {
  std::map<std::vector<uint64_t>, int> orders;
  for (uint64_t key = 0; key < 6000; ++key) {
    const Permutation permutation(key * 0x9E3779B97F4A7C15ull, 3);
    ++orders[{permutation(0), permutation(1), permutation(2)}];
  }
  ASSERT_EQ(orders.size(), 6u);
  for (const auto& [order, count] : orders) EXPECT_NEAR(count, 1000, 150);
}

// Images of index 0 of 10 over 10,000 keys: chi-square with 9 degrees of freedom exceeds 33.7 with a
// probability of 1 in 10,000.
TEST(Permutation, NoPlaceIsPreferred) {
  std::vector<int> counts(10);
  for (uint64_t key = 0; key < 10'000; ++key) ++counts[Permutation(key, 10)(0)];
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - 1000.0) * (count - 1000.0) / 1000;
  EXPECT_LT(chi_square, 33.7);
}

TEST(Sampler, EveryEpochHasEachSampleOnceInAFreshOrder) {
  for (const int64_t n : {1, 2, 3, 10, 1000}) {
    const Sampler sampler(5, n, Order::Shuffled);
    std::vector<std::vector<int64_t>> orders;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::vector<int> counts(static_cast<size_t>(n));
      auto& order = orders.emplace_back();
      for (int64_t i = 0; i < n; ++i) {
        order.push_back(*sampler.sample_at(epoch * n + i));
        ++counts[static_cast<size_t>(order.back())];
        EXPECT_EQ(sampler.epoch_of(epoch * n + i), epoch);
      }
      EXPECT_EQ(std::count(counts.begin(), counts.end(), 1), n);
    }
    if (n == 1000) {
      EXPECT_NE(orders[0], orders[1]);
      EXPECT_NE(orders[1], orders[2]);
    }
  }
}

TEST(Sampler, SeedDecidesTheOrder) {
  const Sampler a(1, 1000, Order::Shuffled), b(1, 1000, Order::Shuffled), c(2, 1000, Order::Shuffled);
  int equal = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(a.sample_at(i), b.sample_at(i));
    equal += a.sample_at(i) == c.sample_at(i);
  }
  EXPECT_LT(equal, 20);
}

// A resumed run of a newer version must continue the same order: these numbers must never change.
TEST(Sampler, OrderIsFrozen) {
  const Sampler sampler(1234, 100, Order::Shuffled);
  std::vector<int64_t> order;
  for (const int64_t position : {0, 1, 2, 3, 4, 99, 100, 101}) order.push_back(*sampler.sample_at(position));
  EXPECT_EQ(order, (std::vector<int64_t>{53, 86, 39, 49, 14, 50, 59, 27}));
}

TEST(Sampler, SequentialPassEnds) {
  const Sampler sampler(1, 3, Order::Sequential);
  EXPECT_EQ(sampler.sample_at(0), 0);
  EXPECT_EQ(sampler.sample_at(2), 2);
  EXPECT_EQ(sampler.sample_at(3), std::nullopt);
}

}  // namespace
}  // namespace quintet::data
