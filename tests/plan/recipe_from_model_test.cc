// Plans without a recipe: open settings are filled in and reported.
#include "plan/recipe_from_model.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/plan.h"
#include "plan/text.h"

namespace quintet::plan {
namespace {

TEST(WithoutFile, FillsInWhatIsOpen) {
  const hardware::Cluster cluster = hardware::parse_cluster("4x8 h100");
  const FilledRecipe a = recipe_from_model({.model = "llama3-8b", .sets = {"parallel.tp=2"}}, cluster);
  EXPECT_EQ(a.recipe.parallel.dp_shard, 16);
  EXPECT_EQ(a.recipe.parallel.zero, 3);
  EXPECT_TRUE(a.recipe.parallel.sequence_parallel);
  EXPECT_EQ(a.recipe.precision.compute, base::DType::BF16);
  EXPECT_EQ(a.recipe.data.seq_len, 8192);
  EXPECT_EQ(a.recipe.batch.global, 16);
  EXPECT_EQ(a.filled.size(), 7u);
  const FilledRecipe pipeline = recipe_from_model({.model = "llama3-8b",
                                                   .sets = {"parallel.pp=4", "parallel.zero=2"},
                                                   .seq_len = 4096,
                                                   .global_batch = 64,
                                                   .micro_batch = 2},
                                                  cluster);
  EXPECT_EQ(pipeline.recipe.parallel.dp_shard, 8);
  EXPECT_EQ(pipeline.recipe.parallel.zero, 2);
  EXPECT_EQ(pipeline.recipe.batch.accumulation, 4);
  EXPECT_EQ(pipeline.filled.size(), 2u);
}

TEST(WithoutFile, BadInput) {
  const hardware::Cluster cluster = hardware::parse_cluster("1x8 h100");
  const auto message = [&](const RecipeRequest& q) -> std::string {
    try {
      recipe_from_model(q, cluster);
    } catch (const base::UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message({.model = "llama3-8c"}).find("did you mean 'llama3-8b'"), std::string::npos);
  EXPECT_NE(message({.model = "llama3-8b", .sets = {"parallel.tp=3"}}).find("does not divide the 8 devices"),
            std::string::npos);
}

TEST(Reports, SayWhetherItFits) {
  Assumptions a;
  a.cluster = hardware::parse_cluster("1x8 h100");
  const FilledRecipe small = recipe_from_model({.model = "llama3-8b"}, a.cluster);
  const std::string good = to_text(make_plan(small.recipe, a));
  EXPECT_NE(good.find(", fits with"), std::string::npos) << good;
  EXPECT_NE(good.find("wait dp_shard"), std::string::npos) << good;
  const FilledRecipe large = recipe_from_model({.model = "llama3-70b"}, a.cluster);
  const Report report = make_plan(large.recipe, a);
  EXPECT_NE(to_text(report).find("DOES NOT FIT by"), std::string::npos);
  EXPECT_NE(to_json(report).find("\"fits\": false"), std::string::npos);
}

}  // namespace
}  // namespace quintet::plan
