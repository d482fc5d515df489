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

// Values that are filled in pass the rules, so no message blames a batch or an axis that the user never set.
TEST(WithoutFile, FillsInWhatIsAcceptedOnHugeClusters) {
  const hardware::Cluster huge = hardware::parse_cluster("100000x8 h100");
  EXPECT_EQ(recipe_from_model({.model = "llama3-8b", .search = true}, huge).recipe.batch.global, 100'000);
  EXPECT_EQ(
      recipe_from_model({.model = "llama3-8b", .seq_len = 2048, .search = true}, huge).recipe.batch.global,
      400'000);
  const auto message = [](const RecipeRequest& q, const char* cluster) -> std::string {
    try {
      recipe_from_model(q, hardware::parse_cluster(cluster));
    } catch (const base::UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(
      message({.model = "llama3-8b"}, "100000x8 h100")
          .find(
              "800,000 devices would be left for parallel.dp_shard, which has at most 65,536; choose another "
              "axis too, such as parallel.tp or parallel.pp, or use --search"),
      std::string::npos);
  EXPECT_NE(message({.model = "llama3-8b"}, "12500x8 h100").find("--set parallel.dp_replicate=2, or"),
            std::string::npos);
  EXPECT_EQ(message({.model = "llama3-8b", .sets = {"parallel.dp_replicate=2"}}, "12500x8 h100"), "");
  const FilledRecipe deep = recipe_from_model({.model = "llama3-8b", .sets = {"parallel.pp=4"}},
                                              hardware::parse_cluster("16384x8 h100"));
  EXPECT_EQ(deep.recipe.batch.global, 131'072);
  EXPECT_EQ(deep.filled.back(), "batch.global = 131072: one micro-batch per stage");
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
