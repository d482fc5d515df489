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

TEST(Scaling, Counts) {
  const hardware::Cluster c = small_cluster().cluster;
  EXPECT_EQ(device_counts(c, 3, 1), (std::vector<int>{1, 2, 4, 8, 16}));
  EXPECT_EQ(resized(c, 2).world(), 2);
  EXPECT_EQ(resized(c, 16).nodes, 4);
}

}  // namespace
}  // namespace quintet::search
