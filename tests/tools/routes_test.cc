// Recorded choices of experts: `quintet routes`, and training that repeats them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/safetensors.h"
#include "comm/local.h"
#include "config/print.h"
#include "tools/record_routes.h"
#include "tools/run_support.h"
#include "train/route_file.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::Sets;
using test::SmallRun;
using test::user_error;
using test::operator+;

constexpr int64_t kExperts = 4, kChoices = 2, kRows = 32, kGlobal = 8;
const Sets kMoe = {"model.layers=3",
                   "model.ffn=64",
                   "model.moe.experts=4",
                   "model.moe.top_k=2",
                   "model.moe.ffn=16",
                   "model.moe.first_dense=1",
                   "precision.compute=\"f64\"",
                   "run.steps=3",
                   "optimizer.lr=0.05",
                   "checkpoint.every=100",
                   "model.moe.bias_rate=0.01"};

struct Step {
  double loss = 0, grad_norm = 0;
  std::vector<std::vector<double>> loads;  // by block with experts
};

std::vector<Step> steps_of(const config::Recipe& recipe) {
  std::vector<Step> steps;
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    train::Rank rank(recipe, world, {.threads = 1});
    const train::RunData data = train::load_data(recipe);
    for (int64_t s = 0; s < recipe.run.steps; ++s) {
      const train::StepResult result = rank.step(s, data.train);
      if (world.rank().value != 0) continue;
      Step step{.loss = result.loss, .grad_norm = result.grad_norm, .loads = {}};
      for (const train::Rank::Sum& sum : rank.step_sums())
        if (sum.kind == graph::SumKind::Load)
          step.loads.emplace_back(sum.values.begin(), sum.values.begin() + kExperts);
      steps.push_back(std::move(step));
    }
  });
  return steps;
}

// The choices that the first weights of a run make for its samples.
struct Recording {
  SmallRun run;
  base::Path file = run / "routes.safetensors";
  std::string said;

  explicit Recording(const Sets& sets = kMoe) {
    const base::Path whole = run / "whole.toml";
    base::write_file_atomically(whole, config::to_toml(run.recipe(sets)));
    said = tools::record_routes(whole, run.recipe(sets),
                                {.source = {.random_weights = true, .needs_text = false}}, file);
  }
  config::Recipe replays(const Sets& sets = {}) const {
    return run.recipe(kMoe + Sets{"data.routes=\"" + file.string() + "\""} + sets);
  }
  // The load of every block in a step.
  std::vector<std::vector<double>> loads(int64_t step) const {
    const checkpoint::SafetensorsFile opened(file.string());
    const checkpoint::TensorInfo& t = *opened.find("routes");
    const auto* const routes = reinterpret_cast<const int16_t*>(opened.bytes(t).data());
    const int64_t columns = t.shape[2];
    std::vector<std::vector<double>> loads(static_cast<size_t>(columns / kChoices),
                                           std::vector<double>(kExperts));
    for (int64_t i = step * kGlobal * kRows * columns; i < (step + 1) * kGlobal * kRows * columns; ++i)
      ++loads[static_cast<size_t>(i % columns / kChoices)][static_cast<size_t>(routes[i])];
    return loads;
  }
};

TEST(Routes, OwnChoicesChangeNothingAndLaterOnesAreRepeated) {
  const Recording r;
  EXPECT_CONTAINS(r.said, "24 samples of steps 1 to 3, 32 rows of 4 choices each");
  const Sets one = kMoe + test::kOneRank;
  const std::vector<Step> plain = steps_of(r.run.recipe(one)), again = steps_of(r.replays(test::kOneRank));
  ASSERT_EQ(again.size(), 3U);
  // The router would choose the same in the first step, so nothing changes.
  EXPECT_EQ(plain[0].loss, again[0].loss);
  EXPECT_EQ(plain[0].grad_norm, again[0].grad_norm);
  bool differ = false;
  for (int64_t s = 0; s < 3; ++s) {
    const auto at = static_cast<size_t>(s);
    EXPECT_EQ(again[at].loads, r.loads(s)) << "step " << s;
    differ = differ || plain[at].loads != r.loads(s);
  }
  EXPECT_TRUE(differ) << "the routers of the other run have not learned anything else";

  for (const Sets& layout : {Sets{}, Sets{"parallel.ep=2"},
                             Sets{"parallel.dp_shard=1", "parallel.zero=0", "parallel.tp=1",
                                  "parallel.sequence_parallel=false", "parallel.cp=2", "parallel.pp=2"}}) {
    const std::vector<Step> spread = steps_of(r.replays(layout));
    for (size_t s = 0; s < 3; ++s) {
      EXPECT_NEAR(spread[s].loss, again[s].loss, 1e-10);
      EXPECT_EQ(spread[s].loads, again[s].loads);
    }
  }
}

// The file again, with something changed, and why it is refused.
std::string refusal(const Recording& r, const std::function<void(std::vector<int16_t>&)>& change,
                    const std::map<std::string, std::string>& metadata = {}, const Sets& sets = {}) {
  const checkpoint::SafetensorsFile opened(r.file.string());
  std::vector<int16_t> routes(static_cast<size_t>(opened.find("routes")->count()));
  std::memcpy(routes.data(), opened.bytes(*opened.find("routes")).data(), routes.size() * 2);
  change(routes);
  const base::Path file = r.run / "changed.safetensors";
  checkpoint::write_safetensors(file.string(), opened.tensors(), metadata, [&](size_t i, auto out) {
    if (opened.tensors()[i].name == "routes")
      std::memcpy(out.data(), routes.data(), out.size());
    else
      std::ranges::copy(opened.bytes(opened.tensors()[i]), out.begin());
  });
  return user_error([&] {
    const config::Recipe recipe = r.run.recipe(kMoe + Sets{"data.routes=\"" + file.string() + "\""} + sets);
    const train::RunData data = train::load_data(recipe);
    const int64_t columns = recipe.model.moe.choices_in(recipe.model.layers);
    std::vector<int32_t> out(static_cast<size_t>(data.train.micro_tokens() * columns));
    for (int64_t step = 0; step < recipe.run.steps; ++step) data.train.fill(step, 0, 0, {.routes = out});
  });
}

TEST(Routes, FilesThatDoNotFitAreRefused) {
  const Recording r;
  const auto nothing = [](std::vector<int16_t>&) {};
  EXPECT_CONTAINS(refusal(r, nothing, {}, {"run.steps=4"}), "ends with sample 23, but the run trains on");
  EXPECT_CONTAINS(refusal(r, nothing, {{"first_sample", "1"}}), "samples 1 to 24 of the run, but not of");
  EXPECT_CONTAINS(refusal(r, nothing, {{"first_sample", "8"}}), "but not of sample 0");
  EXPECT_CONTAINS(refusal(r, nothing, {{"first_sample", "-1"}}), "expected a whole number");
  EXPECT_CONTAINS(refusal(r, nothing, {}, {"run.seed=7"}), "was recorded for other tokens");
  EXPECT_CONTAINS(refusal(r, nothing, {}, {"model.moe.top_k=1"}), "this run needs I16[samples, 32, 2]");
  EXPECT_CONTAINS(refusal(r, [](auto& routes) { routes[9] = 4; }), "are not 2 distinct experts of 4");
  EXPECT_CONTAINS(refusal(r, [](auto& routes) { routes[9] = routes[8]; }),
                  "sample 0, position 2: the choices");
  EXPECT_CONTAINS(refusal(r, [](auto& routes) { routes[9] = -2; }), "are not 2 distinct experts of 4");
}

// Where a file has no choices, the routers choose.
TEST(Routes, RowsWithoutChoicesChoose) {
  const Recording r;
  const checkpoint::SafetensorsFile opened(r.file.string());
  const base::Path file = r.run / "none.safetensors";
  checkpoint::write_safetensors(file.string(), opened.tensors(), {}, [&](size_t i, auto out) {
    std::ranges::copy(opened.bytes(opened.tensors()[i]), out.begin());
    if (opened.tensors()[i].name == "routes") std::ranges::fill(out, std::byte{0xff});
  });
  const std::vector<Step> plain = steps_of(r.run.recipe(kMoe + test::kOneRank)),
                          none = steps_of(r.run.recipe(kMoe + test::kOneRank +
                                                       Sets{"data.routes=\"" + file.string() + "\""}));
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(plain[s].loss, none[s].loss);
    EXPECT_EQ(plain[s].loads, none[s].loads);
  }
}

TEST(Routes, AModelWithOtherRoutersIsRefused) {
  const Recording r;
  const auto refused = [&](const Sets& sets, tools::RecordRoutesOptions options) {
    options.source.random_weights = true, options.source.needs_text = false;
    return user_error(
        [&] { tools::record_routes(r.run / "whole.toml", r.run.recipe(sets), options, r.run / "other"); });
  };
  EXPECT_CONTAINS(refused(kMoe + Sets{"model.moe.top_k=1"}, {}),
                  "has model.moe.top_k 2, but the recipe has 1");
  EXPECT_CONTAINS(refused(kMoe + Sets{"model.moe.first_dense=2"}, {}), "block 1 has experts in");
  EXPECT_CONTAINS(refused({}, {}), "has no experts");
  EXPECT_CONTAINS(refused(kMoe, {.source = {}, .first_step = 2, .steps = 3}),
                  "steps 2 to 4 are not among the 3");
}

}  // namespace
}  // namespace quintet
