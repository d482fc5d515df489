#include "data/blend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/philox.h"
#include "config/blend_shares.h"
#include "data/mixture.h"

namespace quintet::data {
namespace {

std::vector<int64_t> shares_of(std::vector<double> weights) { return *config::whole_shares(weights); }

// Every prefix of two periods has each set's share to within one sample, and random access agrees with
// counting.
void expect_exact(const std::vector<int64_t>& shares) {
  const Blend blend(shares);
  const int64_t period = std::accumulate(shares.begin(), shares.end(), int64_t{0});
  ASSERT_EQ(blend.period(), period);
  std::vector<int64_t> count(shares.size(), 0);
  for (int64_t n = 0; n < 2 * period; ++n) {
    const Blend::Turn turn = blend.at(n);
    ASSERT_EQ(turn.index, count[static_cast<size_t>(turn.set)]++);
    for (size_t k = 0; k < shares.size(); ++k) {
      const __int128 error = __int128{count[k]} * period - __int128{n + 1} * shares[k];
      ASSERT_TRUE(-period < error && error < period) << "set " << k << " after " << n + 1;
    }
  }
  for (size_t k = 0; k < shares.size(); ++k)
    EXPECT_EQ(blend.turns(static_cast<int64_t>(k), 2 * period), 2 * shares[k]);
}

TEST(Blend, EveryPrefixIsExactToOneSample) {
  expect_exact({1});
  expect_exact({1, 1, 1, 1, 1, 1, 1});
  expect_exact({7, 2, 1});
  expect_exact({900, 1, 1, 1, 1, 1, 1, 1});
  expect_exact({500, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5});
  for (uint64_t trial = 0; trial < 40; ++trial) {
    std::vector<int64_t> shares(1 + base::philox(1, trial)[0] % 30);
    for (size_t k = 0; k < shares.size(); ++k) {
      const uint32_t draw = base::philox(2, trial, k)[0];
      shares[k] = 1 + (trial % 2 == 0 ? draw % 100 : draw % 100 * (draw % 100) / (1 + draw % 7));
    }
    expect_exact(shares);
  }
}

TEST(Blend, AnyPositionOfALongRunIsFoundAtOnce) {
  const Blend blend(shares_of({0.123456, 0.876544}));
  for (const int64_t far : {int64_t{1} << 40, (int64_t{1} << 40) + 12345}) {
    const int64_t before = blend.turns(0, far);
    EXPECT_LT(std::abs(static_cast<double>(before) - static_cast<double>(far) * blend.share(0)), 1.001);
    EXPECT_EQ(blend.turns(0, far) + blend.turns(1, far), far);
  }
}

// Weights that are token counts: the pattern is not held, and is the same.
TEST(Blend, LongPeriodsAreExactAtEveryPrefix) {
  const std::vector<int64_t> shares = shares_of({4'812'331'907, 1'204'551'013, 77'000'123, 3});
  const Blend blend(shares);
  const __int128 period = blend.period();
  ASSERT_GT(blend.period(), int64_t{1} << 32);
  std::vector<int64_t> count(shares.size(), 0);
  const int64_t last = 600'000;  // ten blocks, of which four are held
  for (int64_t n = 0; n < last; ++n) {
    const Blend::Turn turn = blend.at(n);
    ASSERT_EQ(turn.index, count[static_cast<size_t>(turn.set)]++);
    for (size_t k = 0; k < shares.size(); ++k) {
      const __int128 error = count[k] * period - __int128{n + 1} * shares[k];
      ASSERT_TRUE(-period < error && error < period) << "set " << k << " after " << n + 1;
    }
  }
  const Blend again(shares);  // from far to near, as a run that continues; and back and forth
  for (int64_t n = last - 1; n > 0; n -= 9'973)
    for (const int64_t at : {n, n * 7'919 % last}) {
      const Blend::Turn a = again.at(at), b = blend.at(at);
      EXPECT_EQ(a.set, b.set);
      EXPECT_EQ(a.index, b.index);
      EXPECT_LE(blend.turns(a.set, at), blend.most_turns(a.set, at));
      EXPECT_GE(blend.turns(a.set, at) + 1, blend.most_turns(a.set, at));
    }
}

// A bound for a run of any length, before its first step.
TEST(Blend, TheMostTurnsOfALongRunComeAtOnce) {
  const Blend blend(shares_of({4'812'331'907, 1'204'551'013}));
  const int64_t far = int64_t{1} << 50;
  const int64_t a = blend.most_turns(0, far), b = blend.most_turns(1, far);
  EXPECT_GE(a + b, far);
  EXPECT_LE(a + b, far + 2);
  EXPECT_NEAR(static_cast<double>(a), static_cast<double>(far) * blend.share(0), 2);
  const Blend held({3, 1});
  EXPECT_EQ(held.most_turns(0, 9), held.turns(0, 9));
}

TEST(Blend, SharesAreTheDecimalsThatTheRecipeSpells) {
  EXPECT_EQ(shares_of({0.7, 0.2, 0.1}), (std::vector<int64_t>{7, 2, 1}));
  EXPECT_EQ(shares_of({3, 1}), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(shares_of({1e-3, 0.5}), (std::vector<int64_t>{1, 500}));
  EXPECT_EQ(shares_of({6e9, 2e9, 1e9}), (std::vector<int64_t>{6, 2, 1}));
  EXPECT_EQ(shares_of({0.333, 0.667}), (std::vector<int64_t>{333, 667}));
  for (const std::vector<double>& bad : std::vector<std::vector<double>>{
           {1e-20, 1}, {0, 1}, {-1, 2}, {std::nan(""), 1}, {INFINITY, 1}, {1e300, 1e-300}})
    EXPECT_FALSE(config::whole_shares(bad));
}

Dataset counting_set(int64_t samples, int32_t base) {
  std::vector<int32_t> ids(static_cast<size_t>(samples) * 4 + 1);
  std::iota(ids.begin(), ids.end(), base);
  return Dataset(Corpus::from_documents("set", 1 << 20, {ids}), 4, true, 0, samples);
}

// A blend is the interleaving of its sets' own orders: each sample of a set once per epoch of the set.
TEST(Mixture, EachSetHasItsOwnEpochs) {
  std::vector<MixtureSet> sets;
  sets.push_back({"a", counting_set(10, 0), Sampler(3, 10, Order::Shuffled, "data.order/a")});
  sets.push_back({"b", counting_set(3, 1000), Sampler(3, 3, Order::Shuffled, "data.order/b")});
  const Mixture mixture(std::move(sets), Blend({3, 2}));
  std::vector<std::vector<int64_t>> taken(2);
  for (int64_t p = 0; p < 50; ++p) {
    const auto pick = mixture.at(p);
    EXPECT_EQ(pick->epoch, static_cast<int64_t>(taken[static_cast<size_t>(pick->set)].size()) /
                               mixture.dataset(pick->set).size());
    taken[static_cast<size_t>(pick->set)].push_back(pick->sample);
  }
  ASSERT_EQ(taken[0].size(), 30U);
  ASSERT_EQ(taken[1].size(), 20U);
  for (size_t set = 0; set < 2; ++set) {
    const auto size = static_cast<size_t>(mixture.dataset(static_cast<int64_t>(set)).size());
    for (size_t epoch = 0; (epoch + 1) * size <= taken[set].size(); ++epoch) {
      std::vector<bool> seen(size);
      for (size_t i = 0; i < size; ++i) seen[static_cast<size_t>(taken[set][epoch * size + i])] = true;
      EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<ptrdiff_t>(size));
    }
  }
  EXPECT_EQ(mixture.samples(), 13);
  EXPECT_EQ(mixture.taken(1, 50), 20);
}

}  // namespace
}  // namespace quintet::data
