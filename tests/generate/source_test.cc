#include "generate/source.h"

#include <gtest/gtest.h>

#include "comm/local.h"
#include "generate/generator.h"
#include "train/support.h"

namespace quintet::generate {
namespace {

// The block that multi-token prediction trains is saved with the run, and generating leaves it out.
TEST(Source, MultiTokenPredictionIsUsedInTrainingOnly) {
  const test::SmallRun small;
  std::vector<std::string> sets = test::kOneRank;
  sets.insert(sets.end(), {"model.mtp.layers=1", "eval.every=3", "eval.batches=1"});
  small.train(sets);
  const std::vector<nlohmann::json> metrics = test::read_metrics(small.run_folder().metrics());
  ASSERT_EQ(metrics.size(), 6u);
  const double first = metrics.front().at("next_token_loss"), last = metrics.back().at("next_token_loss");
  EXPECT_NEAR(first, std::log(256), 0.3);
  EXPECT_LT(last, first);
  EXPECT_TRUE(metrics[2].contains("eval_loss"));
  EXPECT_TRUE(test::tensors_of(small.run_dir()).contains("blocks.2.join_hidden.weight"));

  const Source source = open_source(small.run_dir(), {});
  std::vector<Request> requests = {{{116, 104, 101}, 4}};
  const GeneratorOptions options;
  comm::run_local_world(1, [&](comm::World& world) {
    Generator generator(source.recipe, world, serving_for(source.recipe, requests, options), options);
    source.load(generator.rank());
    for (const graph::Param& p : generator.rank().compiled().logical.params())
      EXPECT_FALSE(generator.rank().compiled().logical.value(p.value).name.starts_with("blocks.2."));
  });
}

}  // namespace
}  // namespace quintet::generate
