// The scaling curve: its text, and that it is true.
#include "search/scaling.h"

#include <gtest/gtest.h>

#include "plan/small_models.h"

namespace quintet::search {
namespace {

using plan::testing::small_cluster;
using plan::testing::small_llama;

// Speed over devices; with a slow network more of them do not help.
TEST(Scaling, StrongCurveBends) {
  plan::Assumptions a = small_cluster();
  a.cluster.outer.bytes_per_s = 3e8;
  const Scaling s = scale(small_llama(), a, device_counts(a.cluster, 2, 1), {.plans = 3, .weak = false});
  ASSERT_EQ(s.strong.size(), 4u);
  EXPECT_EQ(s.strong[0].devices, 2);
  EXPECT_EQ(s.strong[3].devices, 16);
  EXPECT_DOUBLE_EQ(s.strong[0].speedup, 1);
  for (const ScalePoint& p : s.strong) EXPECT_LE(p.efficiency, 1.0001);
  EXPECT_EQ(s.worthwhile, 4);  // one node
  EXPECT_NE(to_text(s).find("past 4 devices, doubling gains less than 1.6x"), std::string::npos)
      << to_text(s);
}

// A speedup above the device ratio is no artifact of the search, and is explained: with little memory, two
// devices hold this model only by recomputing.
TEST(Scaling, AboveAHundredPercentIsMemory) {
  plan::Assumptions a = small_cluster();
  const config::Recipe recipe = small_llama({"batch.global=64", "data.seq_len=2048"});
  const Scaling plenty = scale(recipe, a, {2, 4, 8}, {.plans = 4, .weak = false});
  ASSERT_EQ(plenty.strong.size(), 3u);
  for (const ScalePoint& p : plenty.strong) {
    ASSERT_TRUE(p.best) << p.devices;
    EXPECT_EQ(p.best->recipe.memory.recompute, config::RecomputeKind::None) << p.devices;
    EXPECT_LE(p.efficiency, 1.0001) << p.devices;
  }
  EXPECT_EQ(to_text(plenty).find("above 100 %"), std::string::npos);

  a.cluster.accelerator.memory_bytes = int64_t{272} << 20;
  const Scaling little = scale(recipe, a, {2, 4, 8}, {.plans = 4, .weak = false});
  ASSERT_EQ(little.strong.size(), 3u);
  for (const ScalePoint& p : little.strong) ASSERT_TRUE(p.best) << p.devices;
  EXPECT_EQ(little.strong[0].best->recipe.memory.recompute, config::RecomputeKind::Full);
  EXPECT_EQ(little.strong[1].best->recipe.memory.recompute, config::RecomputeKind::None);
  EXPECT_GT(little.strong[1].efficiency, 1.01);
  EXPECT_NE(to_text(little).find("above 100 %: fewer devices have less memory"), std::string::npos)
      << to_text(little);
}

// A batch of the size of the noise scale makes half of the progress per token of a small one.
TEST(Scaling, ProgressFollowsFromTheNoiseScale) {
  EXPECT_DOUBLE_EQ(useful_share(1e6, 1e6), 0.5);
  EXPECT_DOUBLE_EQ(useful_share(3e6, 1e6), 0.25);
  EXPECT_NEAR(useful_share(1, 1e6), 1, 1e-5);
  const plan::Assumptions a = small_cluster();
  const config::Recipe recipe = small_llama();
  const auto tokens = static_cast<double>(recipe.batch.global * recipe.data.seq_len);
  // So noisy that larger batches cost nothing, and so quiet that they bring nothing.
  for (const double noise : {1e3 * tokens, 1e-3 * tokens}) {
    const Scaling s = scale(recipe, a, {2, 4, 8}, {.plans = 3, .noise_tokens = noise});
    ASSERT_EQ(s.weak.size(), 3u);
    for (size_t i = 0; i < s.weak.size(); ++i) {
      const ScalePoint& p = s.weak[i];
      ASSERT_TRUE(p.best) << p.devices;
      const double share = useful_share(static_cast<double>(p.global_batch * recipe.data.seq_len), noise),
                   first =
                       useful_share(static_cast<double>(s.weak[0].global_batch * recipe.data.seq_len), noise);
      EXPECT_DOUBLE_EQ(p.useful, share);
      EXPECT_DOUBLE_EQ(p.useful_speedup, p.speedup * share / first);
    }
    EXPECT_EQ(s.worthwhile_weak, noise > tokens ? 8 : 2);
    EXPECT_NE(to_text(s).find("critical batch size"), std::string::npos);
  }
  EXPECT_EQ(to_text(scale(recipe, a, {2, 4}, {.plans = 2})).find("critical"), std::string::npos);
}

TEST(Scaling, NoOtherNumberOfDevicesIsFasterAndCheaper) {
  const auto point = [](int devices, double step) {
    ScalePoint p{.devices = devices, .best = plan::Report{}};
    p.best->time.step = step;
    p.best->time.tokens = 1e6;
    p.best->memory.ranks.emplace_back();
    return p;
  };
  // 16 devices are slower than 8 and cost more; 4 cost more than 2 but are faster.
  Scaling s{.strong = {point(2, 10), point(4, 6), point(8, 3.5), point(16, 3.6), {.devices = 32}}};
  const std::vector<const ScalePoint*> set = pareto(s.strong);
  ASSERT_EQ(set.size(), 3u);
  EXPECT_EQ(set[0]->devices, 8);
  EXPECT_EQ(set[1]->devices, 4);
  EXPECT_EQ(set[2]->devices, 2);
  EXPECT_NE(price_text(s, 3.6).find("20 device-s/step  20 USD per 1B tokens"), std::string::npos)
      << price_text(s, 3.6);
  EXPECT_EQ(price_text(s, 0).find("USD"), std::string::npos);
}

TEST(Scaling, Counts) {
  const hardware::Cluster c = small_cluster().cluster;
  EXPECT_EQ(device_counts(c, 3, 1), (std::vector<int>{1, 2, 4, 8, 16}));
  EXPECT_EQ(resized(c, 2).world(), 2);
  EXPECT_EQ(resized(c, 16).nodes, 4);
}

}  // namespace
}  // namespace quintet::search
