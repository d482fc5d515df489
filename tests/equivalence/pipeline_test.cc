// Pipelines against one rank, in f64: interactions of micro-batches, stages and shared parameters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "comm/local.h"
#include "config/validate.h"
#include "equivalence/random_layout.h"
#include "tools/verify.h"

namespace quintet::tests {
namespace {

using config::Recipe;
using tools::LayoutRun;

void expect_equal(const Recipe& recipe, int64_t steps = 2) {
  const tools::VerifyResult r = tools::verify(recipe, {.steps = steps, .synthetic = true});
  EXPECT_TRUE(r.pass()) << tools::to_table(r);
}

LayoutRun run(const Recipe& recipe, int64_t steps = 2) {
  return tools::run_layout(recipe, tools::training_batches(recipe, tools::training_data(recipe, true)),
                           {.steps = steps});
}

Recipe pipelined(int64_t pp, const std::string& schedule = "1f1b", int64_t layers = 0) {
  Recipe r = small_recipe();
  r.parallel.pp = pp;
  r.parallel.schedule = schedule;
  r.model.layers = layers > 0 ? layers : pp * (config::traits_of(schedule).two_chunks() ? 2 : 1);
  return r;
}

std::vector<std::string> schedules() {
  return {config::pipeline_schedules().begin(), config::pipeline_schedules().end()};
}

// The same batch in more and smaller micro-batches has the same gradients.
TEST(Pipeline, GradientsDoNotGrowWithMicroBatches) {
  for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
    std::vector<double> norms;
    for (const int64_t m : {1, 2, 4, 8}) {
      const Recipe r = resolved(pipelined(2, schedule), 8 / m, m);
      norms.push_back(run(r, 1).steps[0].result.grad_norm);
      if (m > 1) expect_equal(r);
    }
    for (const double norm : norms) EXPECT_NEAR(norm, norms[0], 1e-12 * norms[0]) << schedule;
  }
}

TEST(Pipeline, EveryScheduleComputesWhatOneRankComputes) {
  for (const std::string& schedule : schedules())
    for (const int64_t pp : {2, 4}) {
      SCOPED_TRACE(fmt::format("{} pp {}", schedule, pp));
      expect_equal(resolved(pipelined(pp, schedule), 1, 4));
    }
}

// run_layout() checks that the loss is bit-equal on all ranks; here it must be that of one rank.
TEST(Pipeline, AllRanksReportTheLossOfOneRank) {
  for (const std::string& schedule : schedules()) {
    const Recipe r = resolved(pipelined(2, schedule), 2, 2);
    const double loss = run(r, 1).steps[0].result.loss;
    EXPECT_NEAR(loss, run(tools::on_one_rank(r), 1).steps[0].result.loss, 1e-13 * loss) << schedule;
    EXPECT_GT(loss, 5) << "about log 259";
  }
}

TEST(Pipeline, UnevenStages) {
  for (const std::vector<int64_t>& stages :
       std::vector<std::vector<int64_t>>{{}, {2, 1, 1, 1}, {1, 1, 1, 2}, {1, 2, 0, 2}, {0, 3, 2, 0}}) {
    Recipe r = pipelined(4, "1f1b", 5);
    r.parallel.stages = stages;
    expect_equal(resolved(r, 1, 4));
  }
}

TEST(Pipeline, EmbeddingAndHeadAlone) {
  for (const bool tied : {false, true})
    for (const int64_t zero : {0, 3}) {
      Recipe r = pipelined(4, "1f1b", 4);
      r.model.tied = tied;
      r.parallel.dp_shard = zero > 0 ? 2 : 1;
      r.parallel.zero = zero;
      r.parallel.stages = {0, 2, 2, 0};
      expect_equal(resolved(r, 1, 4));
    }
}

// Megatron's letter m. The embedding is read on two ranks, a tied one on three.
TEST(Pipeline, MultiTokenPredictionAnywhereAfterTheBlocks) {
  for (const bool tied : {false, true})
    for (const int64_t zero : {0, 3})
      for (const char* schedule : {"1f1b", "zb-h1"})
        for (const std::vector<int64_t>& stages :
             std::vector<std::vector<int64_t>>{{}, {2, 2, 1, 0}, {2, 2, 0, 1}, {2, 3, 0, 0}, {2, 1, 1, 0}}) {
          Recipe r = pipelined(4, schedule, 4);
          r.model.mtp = {.layers = 1, .loss = 0.5};
          r.model.tied = tied;
          r.parallel.dp_shard = zero > 0 ? 2 : 1;
          r.parallel.zero = zero;
          r.parallel.stages = stages;
          expect_equal(resolved(r, 1, 4));
        }
}

// A stage that has nothing to update still takes part in the norm.
TEST(Pipeline, FrozenStage) {
  Recipe r = pipelined(3, "1f1b", 3);
  r.optimizer.groups = {frozen("blocks.1.*")};
  expect_equal(resolved(r, 1, 3), 3);
}

// A stage without any parameter whose update is scaled by a ratio still takes part in the sum of norms.
TEST(Pipeline, StageWithoutRatios) {
  Recipe r = pipelined(3, "1f1b", 3);
  r.optimizer.groups = {
      {.match = "embed.weight", .kind = config::OptimizerKind::Lamb, .lr = {}, .weight_decay = {}}};
  expect_equal(resolved(r, 1, 3), 3);
}

TEST(Pipeline, FewerMicroBatchesThanStages) {
  for (const std::string& schedule : schedules()) {
    if (schedule == "interleaved") continue;  // refused: it runs micro-batches in groups of pp
    for (const int64_t m : {1, 2}) {
      SCOPED_TRACE(fmt::format("{} m {}", schedule, m));
      expect_equal(resolved(pipelined(3, schedule), 2, m));
    }
  }
}

TEST(Pipeline, ZeroTwoAndThreeUnderEverySchedule) {
  for (const std::string& schedule : schedules())
    for (const int64_t zero : {2, 3}) {
      SCOPED_TRACE(fmt::format("{} zero {}", schedule, zero));
      Recipe r = pipelined(2, schedule);
      r.parallel.dp_shard = 2;
      r.parallel.zero = zero;
      expect_equal(resolved(r, 1, 4));
    }
}

Recipe tied(const std::string& schedule, int64_t zero) {
  Recipe r = pipelined(2, schedule);
  r.model.tied = true;
  r.parallel.dp_shard = 2;
  r.parallel.zero = zero;
  return resolved(r, 1, 2);
}

// The table is on the first and on the last stage. Both add their terms and apply the same update.
TEST(Pipeline, TiedEmbeddingStaysBitIdenticalOnBothStages) {
  for (const int64_t zero : {0, 2, 3}) {
    const Recipe r = tied("1f1b", zero);
    const data::Batches batches = tools::training_batches(r, tools::training_data(r, true));
    std::mutex mutex;
    std::map<int, std::vector<std::byte>> tables;  // by rank
    tools::run_layout(r, batches,
                      {.steps = 3, .step = [&](train::Rank& rank, int64_t step) {
                         const train::StepResult result = rank.step(step, batches);
                         const std::lock_guard lock(mutex);
                         std::vector<std::byte>& mine = tables[rank.compiled().program.rank.value];
                         mine.clear();
                         rank.visit(program::holds_weights,
                                    [&](const train::Rank::Piece& p, const layout::GlobalIndex&) {
                                      if (p.segment->name != "embed.weight") return;
                                      const exec::HostBytes data = rank.read(p);
                                      mine.insert(mine.end(), data.data(), data.data() + p.bytes());
                                    });
                         return result;
                       }});
    ASSERT_EQ(tables.size(), 4u);
    ASSERT_FALSE(tables[0].empty());
    // Ranks 0 and 1 are the first stage, 2 and 3 the last.
    EXPECT_EQ(tables[0], tables[2]) << "zero " << zero;
    EXPECT_EQ(tables[1], tables[3]) << "zero " << zero;
    expect_equal(r);
  }
}

TEST(Pipeline, TiedEmbeddingCountsOnceInTheNorm) {
  for (const std::string& schedule : schedules())
    for (const int64_t zero : {0, 1, 3}) {
      const Recipe r = tied(schedule, zero);
      const LayoutRun layout = run(r);
      for (const tools::StepState& s : layout.steps) {
        double sum = 0;
        for (const tools::Tensor& t : s.gradients)
          for (const double g : t.values) sum += g * g;
        EXPECT_NEAR(s.result.grad_norm, std::sqrt(sum), 1e-12 * std::sqrt(sum))
            << schedule << " zero " << zero;
      }
    }
}

TEST(Pipeline, RecomputeChangesNoBit) {
  for (const char* schedule : {"1f1b", "interleaved", "zb-v"}) {
    Recipe r = resolved(pipelined(2, schedule), 1, 4);
    const LayoutRun kept = run(r);
    for (const auto kind : {config::RecomputeKind::Selective, config::RecomputeKind::Full}) {
      r.memory.recompute = kind;
      r.memory.recompute_first = kind == config::RecomputeKind::Full && r.parallel.schedule != "1f1b" ? 1 : 0;
      const LayoutRun again = run(config::resolve(r));
      for (size_t t = 0; t < kept.steps[1].gradients.size(); ++t)
        EXPECT_EQ(kept.steps[1].gradients[t].values, again.steps[1].gradients[t].values)
            << schedule << " " << kept.steps[1].gradients[t].name;
    }
  }
}

struct Evaluated {
  double loss = 0;
  int64_t tokens = 0;
};

// The same on every rank.
Evaluated evaluated(const Recipe& r) {
  const data::Dataset dataset = tools::training_data(r, true);
  const data::Batches batches = tools::training_batches(r, dataset);
  Recipe held_back = r;  // evaluation processes one micro-batch at a time
  held_back.batch = {r.batch.micro * r.parallel.dp(), r.batch.micro, 1};
  const data::Batches evaluation = tools::training_batches(held_back, dataset);
  std::vector<Evaluated> all(static_cast<size_t>(r.parallel.world()));
  comm::run_local_world(static_cast<int>(r.parallel.world()), [&](comm::World& world) {
    train::Rank rank(r, world, {.evaluate = true});
    rank.step(0, batches);
    const auto before = rank.evaluate(evaluation, 0, 3);
    rank.step(1, batches);  // an evaluation in between has no side effects
    const auto e = rank.evaluate(evaluation, 0, 3);
    EXPECT_NE(before.loss_sum, e.loss_sum);
    all[static_cast<size_t>(world.rank().value)] = {e.loss_sum, e.tokens};
  });
  for (const Evaluated& e : all) {
    EXPECT_EQ(e.loss, all[0].loss);
    EXPECT_EQ(e.tokens, all[0].tokens);
  }
  return all[0];
}

TEST(Pipeline, EvaluationEqualsOneRank) {
  for (const std::string& schedule : schedules())
    for (const int64_t zero : {0, 3}) {
      SCOPED_TRACE(fmt::format("{} zero {}", schedule, zero));
      Recipe r = pipelined(2, schedule);
      r.parallel.dp_shard = 2;
      r.parallel.zero = zero;
      r = resolved(r, 2, 2);
      Recipe one = r;
      one.parallel = {};
      one = resolved(one, 4, 2);
      const Evaluated a = evaluated(r), b = evaluated(one);
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_GT(a.tokens, 0);
      EXPECT_NEAR(a.loss, b.loss, 1e-11 * b.loss);
    }
}

}  // namespace
}  // namespace quintet::tests
