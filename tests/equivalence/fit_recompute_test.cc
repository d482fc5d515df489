// memory.recompute = "fit" through the whole engine: gradients bit-equal to those without recompute, and
// planned memory equal to touched memory.
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/small_recipe.h"
#include "tools/verify.h"

namespace quintet {
namespace {

config::Recipe tiny(const std::vector<std::string>& overrides) {
  return test::small_recipe({"model.layers=4", "batch.micro=2", "batch.accumulation=4",
                             "precision.compute=f64", "loss.chunk=8", "run.steps=2"},
                            overrides);
}

tools::LayoutRun run(const config::Recipe& r) {
  const data::Dataset dataset = tools::training_data(r, true);
  return tools::run_layout(r, tools::training_batches(r, dataset), {.steps = 2, .poison = true});
}

TEST(FitRecompute, GradientsAreBitEqualAndThePlanHolds) {
  for (const std::vector<std::string>& layout :
       std::vector<std::vector<std::string>>{{},
                                             {"parallel.dp_shard=2", "parallel.zero=3"},
                                             {"parallel.tp=2", "parallel.sequence_parallel=true"},
                                             {"parallel.pp=2"},
                                             {"parallel.pp=2", "parallel.schedule=interleaved"}}) {
    config::Recipe r = tiny(layout);
    const tools::LayoutRun kept = run(r);
    int64_t most = 0;
    for (const tools::Peak& p : kept.peaks) most = std::max(most, p.planned);
    r.memory.recompute = config::RecomputeKind::Fit;
    r.memory.budget = base::Bytes(most * 92 / 100);
    const tools::LayoutRun again = run(r);
    for (const tools::Peak& p : again.peaks) {
      EXPECT_LE(p.planned, r.memory.budget.value);
      EXPECT_EQ(p.planned, p.measured);
    }
    for (size_t s = 0; s < 2; ++s) {
      ASSERT_EQ(kept.steps[s].gradients.size(), again.steps[s].gradients.size());
      for (size_t t = 0; t < kept.steps[s].gradients.size(); ++t)
        EXPECT_EQ(kept.steps[s].gradients[t].values, again.steps[s].gradients[t].values)
            << kept.steps[s].gradients[t].name;
    }
    EXPECT_TRUE(tools::verify(r, {.steps = 2, .synthetic = true}).pass());
  }
}

}  // namespace
}  // namespace quintet
