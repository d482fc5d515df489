// Blocks per stage that a recipe leaves open.
#include "compiler/stage_balance.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <numeric>

#include "compiler/compile.h"
#include "compiler/pipeline_schedule.h"
#include "support/small_recipe.h"

namespace quintet::compiler {
namespace {

config::Recipe recipe_of(const std::vector<std::string>& overrides) {
  return test::small_recipe({"model.layers=9", "model.embed=64", "model.ffn=128", "model.heads=2",
                             "model.head_dim=32", "data.seq_len=64", "batch.accumulation=8"},
                            overrides);
}

// Every way to split `layers` into `stages` parts of at least one.
void each_split(int64_t layers, int stages, std::vector<int64_t>& so_far,
                const std::function<void(const std::vector<int64_t>&)>& fn) {
  if (stages == 1) {
    so_far.push_back(layers);
    fn(so_far);
    so_far.pop_back();
    return;
  }
  for (int64_t n = 1; n <= layers - stages + 1; ++n) {
    so_far.push_back(n);
    each_split(layers - n, stages - 1, so_far, fn);
    so_far.pop_back();
  }
}

TEST(StageBalance, IsWithinAPercentOfTheBestOfAllSplits) {
  struct Case {
    const char* schedule;
    int pp, chunks;
  };
  for (const Case& c :
       {Case{"1f1b", 2, 1}, Case{"1f1b", 3, 1}, Case{"1f1b", 4, 1}, Case{"gpipe", 4, 1},
        Case{"interleaved", 2, 2}, Case{"interleaved", 2, 4}, Case{"zb-h1", 3, 1}, Case{"zb-h2", 4, 1},
        Case{"zb-v", 2, 2}, Case{"v-half", 3, 2}, Case{"dualpipev", 2, 2}})
    for (const int64_t vocab : {256, 1000, 4000}) {  // a head smaller than a block, about as large, larger
      SCOPED_TRACE(fmt::format("{} pp {} x {}, {} words", c.schedule, c.pp, c.chunks, vocab));
      const config::Recipe recipe =
          recipe_of({fmt::format("parallel.pp={}", c.pp), fmt::format("parallel.chunks={}", c.chunks),
                     fmt::format("parallel.schedule={}", c.schedule), fmt::format("model.vocab={}", vocab)});
      const BlockWork work = block_work(recipe, training_graph(recipe));
      const schedule::Schedule schedule = pipeline_schedule(recipe);
      const std::vector<int64_t> chosen = blocks_per_stage(recipe, work);
      EXPECT_EQ(std::accumulate(chosen.begin(), chosen.end(), int64_t{0}), 9);
      double best = std::numeric_limits<double>::infinity();
      std::vector<int64_t> so_far, best_split;
      each_split(9, schedule.virtual_stages(), so_far, [&](const std::vector<int64_t>& split) {
        const double time = scheduled_work(work, split, schedule, schedule.micro_batches);
        if (time < best) best = time, best_split = split;
      });
      EXPECT_LE(scheduled_work(work, chosen, schedule, schedule.micro_batches), 1.01 * best)
          << fmt::format("{} chosen, {} is best", chosen, best_split);
    }
}

// The head computes its gradients in the forward phase: three matmuls there, and none in the backward phase.
TEST(StageBalance, CountsTheHeadsGradientsWhereTheyAreComputed) {
  const config::Recipe recipe = recipe_of({"parallel.pp=3", "model.vocab=4000"});
  const BlockWork work = block_work(recipe, training_graph(recipe));
  const double matmul = 2.0 * static_cast<double>(recipe.batch.micro * recipe.data.seq_len) * 64 * 4000;
  ASSERT_EQ(work.f.size(), 11u);
  EXPECT_GE(work.f.back(), 3 * matmul);
  EXPECT_LT(work.b.back() + work.w.back(), 0.1 * work.f.back());
  EXPECT_GT(work.b[1] + work.w[1], 1.5 * work.f[1]);
}

TEST(StageBalance, CountsWhatIsRecomputedInTheBackwardPass) {
  const auto work_with = [](const char* recompute) {
    const config::Recipe recipe =
        recipe_of({"parallel.pp=3", "model.vocab=4000", std::string("memory.recompute=") + recompute});
    return block_work(recipe, training_graph(recipe));
  };
  const BlockWork none = work_with("none"), full = work_with("full");
  EXPECT_EQ(none.f, full.f);
  EXPECT_EQ(none.w, full.w);
  EXPECT_EQ(none.b.back(), full.b.back()) << "the head is not recomputed";
  // The last sum of a block is a boundary, which the next block reads.
  EXPECT_GT(full.b[1] - none.b[1], 0.8 * none.f[1]);
  EXPECT_LE(full.b[1] - none.b[1], none.f[1]);
}

// Weights of a stage count once per micro-batch, however long the schedule: a shortened one gives the same.
TEST(StageBalance, DoesNotDependOnHowManyMicroBatchesAreSimulated) {
  const config::Recipe recipe = recipe_of({"parallel.pp=3", "model.vocab=1000", "batch.accumulation=96"});
  ASSERT_LT(with_few_micro_batches(recipe).batch.accumulation, 96);
  const BlockWork work = block_work(recipe, training_graph(recipe));
  EXPECT_EQ(blocks_per_stage(recipe, work), balance_stages(work, pipeline_schedule(recipe), 96));
}

std::vector<int64_t> balanced(const std::string& preset, int64_t seq_len, int64_t pp) {
  const config::Recipe recipe = config::parse(
      fmt::format("[model]\npreset = \"{}\"\n[data]\nseq_len = {}\n[optimizer]\nlr = 1e-3\n[run]\nsteps = 1\n"
                  "[batch]\nmicro = 1\nglobal = 32\n[parallel]\npp = {}\n",
                  preset, seq_len, pp));
  return blocks_per_stage(recipe, block_work(recipe, training_graph(recipe)));
}

// The head costs two blocks of 8B, 0.66 of 405B; the embedding next to nothing.
TEST(StageBalance, KnownModelsWithTheirHeadCounted) {
  EXPECT_EQ(balanced("llama3-8b", 8192, 4), (std::vector<int64_t>{9, 9, 8, 6}));
  EXPECT_EQ(balanced("llama2-7b", 4096, 4), (std::vector<int64_t>{8, 8, 8, 8}));
  EXPECT_EQ(balanced("llama3-405b", 8192, 8), (std::vector<int64_t>{16, 16, 16, 16, 16, 16, 15, 15}));
}

TEST(StageBalance, AnExplicitListIsKept) {
  const config::Recipe recipe = recipe_of({"parallel.pp=3", "parallel.stages=[1, 1, 7]"});
  EXPECT_EQ(blocks_per_stage(recipe, block_work(recipe, training_graph(recipe))),
            (std::vector<int64_t>{1, 1, 7}));
}

}  // namespace
}  // namespace quintet::compiler
