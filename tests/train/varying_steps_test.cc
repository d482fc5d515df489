// What changes from step to step: the size of the batch, skipped spikes, measured gradients.
#include <cmath>
#include <map>
#include <set>

#include "base/checksum.h"
#include "base/philox.h"
#include "comm/local.h"
#include "train/rank.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::kOneRank;
using test::read_metrics;
using test::SmallRun;
using Sets = std::vector<std::string>;

Sets with(Sets sets, const Sets& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

// The default of SmallRun is dp_shard 2, zero 3, tp 2.
const std::map<std::string, Sets> kLayouts = {
    {"one rank", kOneRank},
    {"zero 3, tp", {}},
    {"zero 1", {"parallel.zero=1", "parallel.tp=1", "parallel.sequence_parallel=false"}},
    {"replicas", with(kOneRank, {"parallel.dp_replicate=2"})},
    {"1f1b", with(kOneRank, {"parallel.pp=2"})},
    {"gpipe, zero 2",
     with(kOneRank, {"parallel.pp=2", "parallel.schedule=gpipe", "parallel.dp_shard=2", "parallel.zero=2"})}};

// Metrics of a run in every layout; the first one is of one rank.
std::vector<std::pair<std::string, std::vector<nlohmann::json>>> in_all_layouts(
    const Sets& sets, const std::set<std::string>& only = {}) {
  std::vector<std::pair<std::string, std::vector<nlohmann::json>>> list;
  for (const bool one : {true, false})
    for (const auto& [name, layout] : kLayouts) {
      if ((name == "one rank") != one || (!only.empty() && !only.contains(name))) continue;
      const SmallRun small;
      const auto result = small.train(with(layout, with({"precision.compute=f64", "batch.micro=1"}, sets)));
      for (const auto& rank : result.summary.ranks)
        EXPECT_EQ(rank.planned_peak_bytes, rank.measured_peak_bytes) << name;
      list.emplace_back(name, read_metrics(small.run_folder().metrics()));
    }
  return list;
}

void expect_equal(const std::vector<std::pair<std::string, std::vector<nlohmann::json>>>& runs,
                  const std::vector<const char*>& keys) {
  for (const auto& [name, metrics] : runs) {
    ASSERT_EQ(metrics.size(), runs[0].second.size()) << name;
    for (size_t i = 0; i < metrics.size(); ++i)
      for (const char* key : keys) {
        ASSERT_EQ(metrics[i].contains(key), runs[0].second[i].contains(key))
            << name << " " << key << " " << i;
        if (!metrics[i].contains(key)) continue;
        const double a = metrics[i].at(key), b = runs[0].second[i].at(key);
        EXPECT_NEAR(a, b, 1e-9 * std::max(1.0, std::abs(b))) << name << ": " << key << " of step " << i + 1;
      }
  }
}

TEST(GrowingBatch, LayoutsAgreeStepByStep) {
  const auto runs = in_all_layouts(
      {"batch.global=8", "run.steps=7", "batch.ramp=[{until=2, global=2}, {until='11 sequences', global=4}]",
       "optimizer.schedule.kind=cosine", "optimizer.schedule.warmup='300 tokens'"});
  expect_equal(runs, {"loss", "grad_norm", "lr", "tokens", "sequences"});
  // 2 steps of 2, then 2 of 4 to reach 11, then 8.
  std::vector<int64_t> sequences;
  for (const nlohmann::json& m : runs[0].second) sequences.push_back(m.at("sequences"));
  EXPECT_EQ(sequences, (std::vector<int64_t>{2, 4, 8, 12, 20, 28, 36}));
  // The warm-up counts tokens: 64 of 300 after the first step.
  EXPECT_DOUBLE_EQ(runs[0].second[0].at("lr").get<double>(), 1e-2 * 64 / 300);
  EXPECT_NEAR(runs[0].second.back().at("lr").get<double>(), 0, 1e-15);
}

const Sets kExperts = {"model.moe.experts=4",
                       "model.moe.top_k=2",
                       "model.moe.ffn=16",
                       "model.moe.first_dense=1",
                       "model.moe.balance_loss=0.1",
                       "model.moe.z_loss=0.05",
                       "parallel.tp=1",
                       "parallel.sequence_parallel=false"};

// Auxiliary losses are means over the micro-batches of a step, however many there are.
TEST(GrowingBatch, AuxiliaryLossesAreMeansOverTheStep) {
  for (const char* scope : {"micro_batch", "sequence", "global"}) {
    SCOPED_TRACE(scope);
    const Sets sets = with(kOneRank, with(kExperts, {"precision.compute=f64", "batch.micro=2",
                                                     fmt::format("model.moe.balance_scope={}", scope)}));
    const SmallRun ramp, plain;
    ramp.train(with(sets, {"batch.global=8", "run.steps=4", "batch.ramp=[{until=3, global=4}]"}));
    plain.train(with(sets, {"run.steps=3", "batch.global=4"}));
    const auto a = read_metrics(ramp.run_folder().metrics()), b = read_metrics(plain.run_folder().metrics());
    for (size_t i = 0; i < 3; ++i)
      for (const char* key : {"loss", "grad_norm", "balance_loss", "z_loss"}) {
        const double x = a[i].at(key), y = b[i].at(key);
        EXPECT_NEAR(x, y, 1e-12 * std::abs(y)) << key << " " << i;
      }
  }
}

TEST(GrowingBatch, AuxiliaryLossesAgreeInAllLayouts) {
  const auto runs =
      in_all_layouts(with(kExperts, {"batch.global=8", "run.steps=5", "batch.ramp=[{until=2, global=4}]",
                                     "run.noise_scale_every=2", "run.noise_scale_batch=2",
                                     "model.moe.balance_scope=sequence", "optimizer.lr_scaling.rule=sqrt"}),
                     {"one rank", "zero 1", "1f1b"});
  expect_equal(runs, {"loss", "grad_norm", "lr", "balance_loss", "z_loss", "noise_scale"});
  EXPECT_NEAR(runs[0].second[0].at("lr").get<double>(), 1e-2 * std::sqrt(0.5), 1e-15);
  EXPECT_DOUBLE_EQ(runs[0].second[2].at("lr").get<double>(), 1e-2);
}

// The first stage is a run of its own with that batch.
TEST(GrowingBatch, TheFirstStageIsARunOfItsBatch) {
  const SmallRun ramp, plain;
  ramp.train(with(kOneRank, {"run.steps=5", "batch.ramp=[{until=3, global=4}]"}));
  plain.train(with(kOneRank, {"run.steps=3", "batch.global=4"}));
  const auto a = read_metrics(ramp.run_folder().metrics()), b = read_metrics(plain.run_folder().metrics());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(a[i].at("loss"), b[i].at("loss")) << i;
    EXPECT_EQ(a[i].at("grad_norm"), b[i].at("grad_norm")) << i;
  }
  EXPECT_EQ(a[3].at("tokens").get<int64_t>(), 2 * a[0].at("tokens").get<int64_t>());
}

// Frames of fewer micro-batches may reach further than those of more: memory is measured with both.
TEST(GrowingBatch, ASmallerBatchMayTakeMoreMemory) {
  const Sets sets =
      with(kOneRank, {"precision.compute=f64", "batch.micro=3", "model.layers=5", "parallel.pp=2",
                      "parallel.schedule=v-half", "parallel.stages=[0, 4, 1, 0]"});
  const auto planned = [&](const Sets& batch) {
    const SmallRun small;
    std::vector<int64_t> peaks;
    for (const auto& rank : small.train(with(sets, batch)).summary.ranks) {
      EXPECT_EQ(rank.planned_peak_bytes, rank.measured_peak_bytes);
      peaks.push_back(rank.planned_peak_bytes);
    }
    return peaks;
  };
  const auto few = planned({"batch.global=6", "run.steps=2"}),
             many = planned({"batch.global=9", "run.steps=2"}),
             both = planned({"batch.global=9", "run.steps=4", "batch.ramp=[{until=2, global=6}]"});
  EXPECT_GT(few[0], many[0]) << "the case of this test";
  for (size_t r = 0; r < both.size(); ++r) EXPECT_GE(both[r], std::max(few[r], many[r])) << r;
}

TEST(SpikeGuard, LimitsAreMeanAndDeviationOfTheLastAcceptedSteps) {
  train::SpikeGuard guard({.window = 3, .factor = 2});
  EXPECT_TRUE(std::isinf(guard.limits(0).loss));
  guard.accept(0, 100, 1);
  guard.accept(1, 2, 3);
  guard.accept(2, 4, 3);
  EXPECT_TRUE(std::isinf(guard.limits(3).norm)) << "step 2 may be in flight: two steps are known";
  guard.accept(3, 6, 3);
  EXPECT_DOUBLE_EQ(guard.limits(4).norm, 7.0 / 3 + 2 * std::sqrt(8.0 / 9));
  guard.accept(7, 50, 50);  // 4, 5 and 6 were skipped
  EXPECT_DOUBLE_EQ(guard.limits(8).loss, 4 + 2 * std::sqrt(8.0 / 3));
  EXPECT_DOUBLE_EQ(guard.limits(8).norm, 3);
  EXPECT_DOUBLE_EQ(guard.limits(9).loss, 20 + 2 * std::sqrt((16 * 16 + 14 * 14 + 30 * 30) / 3.0));
}

uint64_t hash_of_states(const train::Rank& rank) {
  base::Checksum hash;
  rank.visit([](const program::GroupSlot& s) { return s.keep != graph::Keep::Transient; },
             [&](const train::Rank::Piece& piece, const layout::GlobalIndex&) {
               hash.add({rank.read(piece).data(), static_cast<size_t>(piece.bytes())});
             });
  return hash.value();
}

// Random tokens in a run on text: every rank skips the step, no bit changes, and training goes on.
TEST(SpikeGuard, ASpikeIsSkippedByAllRanks) {
  constexpr int64_t kSteps = 16;
  for (const auto& [name, layout] : kLayouts) {
    SCOPED_TRACE(name);
    const SmallRun small;
    // A learning rate at which gradient norms stay level.
    const config::Recipe recipe =
        small.recipe(with(layout, {"run.skip_spike.window=4", "run.skip_spike.factor=3", "run.steps=20",
                                   "batch.micro=1", "optimizer.lr=1e-3"}));
    const train::RunData data = train::load_data(recipe);
    comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
      train::Rank rank(recipe, world, {});
      int64_t skipped = 0;
      for (int64_t step = 0; step < kSteps; ++step) skipped = rank.step(step, data.train).skipped_total;
      const uint64_t before = hash_of_states(rank);
      const exec::LoadBatch load = rank.load_of(kSteps, data.train);
      const exec::LoadBatch noise = [&](int micro, const std::vector<exec::InputRows>& inputs) {
        load(micro, inputs);
        for (const exec::InputRows& input : inputs)
          if (input.spec.kind == graph::InputKind::Labels)
            for (uint64_t i = 0; i < 32; ++i)
              input.data[i] = static_cast<int32_t>(base::philox(7, i, static_cast<uint64_t>(micro))[0] % 256);
      };
      const train::StepResult spike =
          rank.step_with(kSteps, noise, recipe.batch.micro * recipe.batch.accumulation * 32);
      EXPECT_TRUE(spike.skipped && spike.spike);
      EXPECT_EQ(spike.skipped_total, skipped + 1);
      EXPECT_EQ(hash_of_states(rank), before);
      for (int64_t step = kSteps + 1; step < 20; ++step) rank.step(step, data.train);
      EXPECT_NE(hash_of_states(rank), before);
    });
  }
}

TEST(SpikeGuard, SpikesAreCountedAndEndTheRunInTheEnd) {
  const SmallRun small;
  // Hardly any step stays below the mean of the four before it.
  const Sets sets = with(kOneRank, {"run.skip_spike.window=4", "run.skip_spike.factor=1e-6", "run.steps=60",
                                    "run.max_skipped_steps=60", "optimizer.lr=0.1"});
  const auto result = small.train(sets);
  int64_t spikes = 0;
  for (const nlohmann::json& m : read_metrics(small.run_folder().metrics())) spikes += m.contains("spike");
  EXPECT_GT(spikes, 2);
  EXPECT_EQ(result.summary.skipped_steps, spikes);
  const SmallRun again;
  const auto stopped = again.train(with(sets, {"run.max_skipped_steps=1"}));
  EXPECT_EQ(stopped.summary.skipped_steps, 1);
  EXPECT_CONTAINS(stopped.message, "run.skip_spike.factor");
}

// Gradients of b tokens are G plus noise of variance s / b per element.
TEST(NoiseScale, EstimatesAreUnbiased) {
  constexpr int kDims = 32, kTrials = 4000;
  constexpr double kGradient = 0.3, kDeviation = 2;
  double variance = 0, squared = 0;
  for (int t = 0; t < kTrials; ++t) {
    train::GradientNorm small{.squared = 0, .tokens = 8}, large{.squared = 0, .tokens = 64};
    for (int d = 0; d < kDims; ++d) {
      double sum = 0;
      for (int i = 0; i < 64; ++i) {
        sum += kGradient + kDeviation * base::normal(11, static_cast<uint64_t>((t * kDims + d) * 64 + i));
        if (i == 7) small.squared += sum / 8 * (sum / 8);
      }
      large.squared += sum / 64 * (sum / 64);
    }
    train::NoiseScale one;
    one.add(small, large);
    ASSERT_EQ(one.estimates(), 1);
    variance += one.variance() / kTrials;
    squared += one.squared_gradient() / kTrials;
  }
  EXPECT_NEAR(variance, kDims * kDeviation * kDeviation, 0.02 * kDims * kDeviation * kDeviation);
  EXPECT_NEAR(squared, kDims * kGradient * kGradient, 0.03 * kDims * kGradient * kGradient);
}

TEST(NoiseScale, AveragesWeighTheLastEstimatesMost) {
  train::NoiseScale scale;
  scale.add({.squared = 3, .tokens = 1}, {.squared = 2, .tokens = 2});  // G^2 = 1, S = 2
  EXPECT_DOUBLE_EQ(scale.tokens(), 2);
  scale.add({.squared = 4, .tokens = 1}, {.squared = 4, .tokens = 2});  // G^2 = 4, S = 0
  EXPECT_DOUBLE_EQ(scale.squared_gradient(), (0.9 * 1 + 4) / 1.9);
  EXPECT_DOUBLE_EQ(scale.variance(), 0.9 * 2 / 1.9);
  scale.add({.squared = 4, .tokens = 2}, {.squared = 4, .tokens = 2});
  scale.add({.squared = NAN, .tokens = 1}, {.squared = 4, .tokens = 2});
  EXPECT_EQ(scale.estimates(), 2) << "nothing to learn from";
}

TEST(NoiseScale, LayoutsAgreeAndTrainingIsNotTouched) {
  const Sets sets = {"batch.global=8", "run.steps=5"};
  const auto runs = in_all_layouts(with(sets, {"run.noise_scale_every=2", "run.noise_scale_batch=2"}));
  expect_equal(runs, {"loss", "grad_norm", "noise_scale", "gradient_variance", "gradient_squared"});
  EXPECT_FALSE(runs[0].second[0].contains("noise_scale"));
  EXPECT_TRUE(runs[0].second[1].contains("noise_scale"));
  EXPECT_GT(runs[0].second[3].at("gradient_variance").get<double>(), 0);
  for (const auto& [name, plain] : in_all_layouts(sets, {"zero 3, tp", "1f1b"}))
    for (const auto& [other, measured] : runs)
      for (size_t i = 0; other == name && i < plain.size(); ++i)
        EXPECT_EQ(plain[i].at("loss"), measured[i].at("loss")) << name << " " << i;
}

}  // namespace
}  // namespace quintet
