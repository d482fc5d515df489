// Ranks that were started with different settings report it before they run.
#include "train/agreement.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/local.h"
#include "config/parse.h"
#include "models/build.h"
#include "support/small_recipe.h"
#include "train/rank.h"

namespace quintet::train {
namespace {

using Overrides = std::vector<std::string>;

config::Recipe recipe_with(Overrides overrides) {
  overrides.insert(overrides.end(), {"parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2",
                                     "parallel.pp=2", "batch.accumulation=2"});
  return test::small_recipe(overrides);
}

// The message of eight ranks of which one, `odd`, has another recipe or model than the others.
std::string complaint(int odd, const Overrides& overrides, const compiler::ModelFn& model = {}) {
  try {
    comm::run_local_world(8, [&](comm::World& world) {
      const bool is_odd = world.rank().value == odd;
      Rank(recipe_with(is_odd ? overrides : Overrides{}), world,
           {.model = is_odd ? model : compiler::ModelFn{}});
    });
  } catch (const base::UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Agreement, EqualRanksProceed) {
  EXPECT_EQ(complaint(3, {}), "");
  EXPECT_EQ(complaint(3, {"run.threads=2"}), "") << "a host may have its own";
}

TEST(Agreement, NamesTheKeyThatDiffers) {
  EXPECT_EQ(
      complaint(5, {"optimizer.lr=0.25"}),
      fmt::format("ranks were started with different recipes: optimizer.lr is {} on rank 0 and 0.25 on rank "
                  "5. Start all ranks with the same recipe and the same overrides [Q2030]",
                  recipe_with({}).optimizer.lr));
  // Keys that change the program, too; the first in recipe order.
  const std::string text = complaint(1, {"model.ffn=64", "optimizer.lr=0.25"});
  EXPECT_NE(text.find("model.ffn is "), std::string::npos) << text;
  EXPECT_NE(text.find(" and 64 on rank 1"), std::string::npos) << text;
  // Rank 0 is the odd one: the lowest other rank is named.
  EXPECT_NE(complaint(0, {"optimizer.lr=0.25"}).find("optimizer.lr is 0.25 on rank 0"), std::string::npos);
}

TEST(Agreement, NamesTheInstructionThatDiffers) {
  // The same recipe with a custom model: other norms.
  const auto other = [](const graph::BuildOptions& build) {
    config::Recipe recipe = recipe_with({});
    recipe.model.norm_eps *= 2;
    return models::build(recipe.model, build);
  };
  const std::string text = complaint(6, {}, other);
  EXPECT_NE(text.find("ranks compiled different programs from the same recipe: instruction "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(" of forward"), std::string::npos) << text;
  EXPECT_NE(text.find("rms_norm"), std::string::npos) << text;
  EXPECT_NE(text.find("eps="), std::string::npos) << text;
  EXPECT_NE(text.find("on rank 6"), std::string::npos) << text;
}

}  // namespace
}  // namespace quintet::train
