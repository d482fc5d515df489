// Choosing tokens, against the definition in graph/ops/cache.cc computed another way: probabilities of
// sorted tokens.
#include "kernels/cpu/generate/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "base/philox.h"

namespace quintet::kernels::cpu {
namespace {

constexpr int64_t kVocab = 50, kPositions = 12;

struct Drawn {
  std::vector<double> logits;
  std::vector<int32_t> history;  // ids of the sequence so far
};

Drawn drawn(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 2);
  Drawn d;
  for (int64_t i = 0; i < kVocab; ++i) d.logits.push_back(normal(random));
  for (int64_t i = 0; i < kPositions; ++i) d.history.push_back(static_cast<int32_t>(random() % kVocab));
  return d;
}

// The probability of every token: tokens by falling probability, cut at the first rule that drops one.
std::vector<double> probabilities(const Drawn& d, const SampleRule& rule) {
  std::vector<double> x = d.logits;
  for (const int32_t id : std::set<int32_t>(d.history.begin(), d.history.end())) {
    double& v = x[static_cast<size_t>(id)];
    v = v > 0 ? v / rule.repetition_penalty : v * rule.repetition_penalty;
  }
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  const auto weight = [&](size_t i) { return std::exp((x[i] - x[order[0]]) / rule.temperature); };
  size_t kept = rule.top_k > 0 ? std::min<size_t>(static_cast<size_t>(rule.top_k), x.size()) : x.size();
  double total = 0, sum = 0;
  for (size_t i = 0; i < kept; ++i) total += weight(order[i]);
  for (size_t i = 0; i < kept; ++i)
    if ((sum += weight(order[i])) / total >= rule.top_p) kept = i + 1;
  while (kept > 1 && weight(order[kept - 1]) < rule.min_p) --kept;
  sum = 0;
  for (size_t i = 0; i < kept; ++i) sum += weight(order[i]);
  std::vector<double> p(x.size(), 0);
  for (size_t i = 0; i < kept; ++i) p[order[i]] = weight(order[i]) / sum;
  return p;
}

std::vector<int32_t> chosen(const Drawn& d, SampleRule rule, int64_t rows) {
  rule.vocab = kVocab;
  std::vector<double> logits;
  for (int64_t r = 0; r < rows; ++r) logits.insert(logits.end(), d.logits.begin(), d.logits.end());
  std::vector<int32_t> samples(static_cast<size_t>(rows)), positions(samples.size(), kPositions - 1),
      ids(samples.size());
  std::iota(samples.begin(), samples.end(), 0);
  const std::vector<int32_t> table = {0}, sequences(samples.size(), 0);
  History history;
  if (rule.repetition_penalty != 1)
    history = {.ids = d.history.data(),
               .pages = {.table = table.data(), .page_rows = kPositions, .pages_per_sequence = 1},
               .sequences = sequences.data()};
  ThreadPool pool(2);
  std::vector<std::byte> workspace(static_cast<size_t>(sample_workspace_bytes(kVocab, 2)));
  sample<double>(logits.data(), rows, kVocab, rule, samples.data(), positions.data(), history, ids.data(),
                 workspace.data(), pool);
  return ids;
}

const std::vector<SampleRule> kRules = {
    {.temperature = 1},
    {.temperature = 0.6},
    {.temperature = 1.7, .top_k = 5},
    {.temperature = 1, .top_p = 0.7},
    {.temperature = 0.9, .min_p = 0.1},
    {.temperature = 1, .repetition_penalty = 1.4},
    {.temperature = 0.8, .top_k = 20, .top_p = 0.9, .min_p = 0.03, .repetition_penalty = 1.2},
    {.temperature = 1, .top_k = 1},
    {.temperature = 1, .top_p = 1e-9},
    {.temperature = 1, .min_p = 1},
};

// The token of a row is where its random number falls among the probabilities, in the order of the ids.
TEST(Sample, TokensFollowTheRules) {
  for (uint32_t seed = 1; seed <= 4; ++seed)
    for (size_t r = 0; r < kRules.size(); ++r) {
      SampleRule rule = kRules[r];
      rule.key = 77 + seed;
      const Drawn d = drawn(seed);
      const std::vector<double> p = probabilities(d, rule);
      const std::vector<int32_t> ids = chosen(d, rule, 200);
      for (size_t row = 0; row < ids.size(); ++row) {
        const double uniform = base::uniform(rule.key, kPositions, row);
        double below = 0;
        size_t expected = 0;
        while (expected + 1 < p.size() && (p[expected] == 0 || below + p[expected] <= uniform))
          below += p[expected++];
        ASSERT_EQ(ids[row], static_cast<int32_t>(expected))
            << "rule " << r << ", seed " << seed << ", row " << row;
      }
    }
}

TEST(Sample, TemperatureZeroTakesTheFirstOfTheLargest) {
  Drawn d = drawn(9);
  d.logits[17] = d.logits[31] = 100;
  EXPECT_EQ(chosen(d, {.temperature = 0}, 1)[0], 17);
  d.logits[17] = std::nan("");
  EXPECT_EQ(chosen(d, {.temperature = 0}, 1)[0], -1) << "logits that are not finite";
}

// Logits that are equal are kept or dropped together.
TEST(Sample, EqualLogitsStayTogether) {
  Drawn d = drawn(3);
  std::fill(d.logits.begin(), d.logits.end(), 0.0);
  d.logits[4] = d.logits[8] = d.logits[15] = 5;
  for (const SampleRule& rule :
       {SampleRule{.temperature = 1, .top_k = 2}, SampleRule{.temperature = 1, .top_p = 0.5}}) {
    const std::vector<int32_t> ids = chosen(d, rule, 300);
    EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()), (std::set<int32_t>{4, 8, 15}));
  }
}

}  // namespace
}  // namespace quintet::kernels::cpu
