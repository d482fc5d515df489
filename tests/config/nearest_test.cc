#include "config/nearest.h"

#include <gtest/gtest.h>

#include "config/support.h"

namespace quintet::config {
namespace {

TEST(Nearest, CaseIsIgnored) {
  EXPECT_EQ(nearest_key("Run.DEVICE", {"run.steps", "run.device"}), "run.device");
  EXPECT_EQ(nearest_key("Data.Steps", {"run.steps", "run.seed"}), "run.steps");
}

TEST(Nearest, KeysAreFoundInOtherSectionsToo) {
  EXPECT_EQ(nearest_key("data.steps", {"run.steps", "run.seed"}), "run.steps");
  EXPECT_EQ(nearest_key("steps", {"run.steps", "run.seed"}), "run.steps");
  EXPECT_EQ(nearest_key("run.stesp", {"run.steps", "run.seed"}), "run.steps");
}

TEST(Nearest, DivisorsAndMultiplesOnBothSides) {
  EXPECT_EQ(nearest_divisors(12, 5), "4 or 6");
  EXPECT_EQ(nearest_divisors(12, 4), "4");
  EXPECT_EQ(nearest_divisors(12, 50), "12");
  EXPECT_EQ(nearest_divisors(7, 3), "1 or 7");
  EXPECT_EQ(nearest_multiples(4, 10), "8 or 12");
  EXPECT_EQ(nearest_multiples(4, 3), "4");
  EXPECT_EQ(nearest_multiples(4, 8), "8");
}

// Three rules reject parallel.tp = 7; each alone would suggest other values.
TEST(Nearest, TheSuggestedNumberSatisfiesAllRules) {
  const std::vector<std::string> model = {"model.heads=12", "model.kv_heads=4", "model.ffn=40",
                                          "model.head_dim=8"};
  std::vector<std::string> broken = model;
  broken.push_back("parallel.tp=7");
  const std::vector<Problem> problems = problems_with(broken);
  ASSERT_EQ(problems.size(), 3u);
  for (const Problem& p : problems)
    EXPECT_EQ(p.nearest, "4") << to_string(p);  // 6 and 8 violate one rule each
  std::vector<std::string> mended = model;
  mended.push_back("parallel.tp=4");
  EXPECT_TRUE(problems_with(mended).empty());
}

}  // namespace
}  // namespace quintet::config
