// Linear layers on 8-bit codes: every layout rounds as one rank does; training recovers from outliers;
// gradients stay close to those of the full type.
#include "base/fp8.h"

#include "compiler/compile.h"
#include "config/names.h"
#include "equivalence/checks.h"
#include "equivalence/code_places.h"
#include "graph/fp8_ops.h"
#include "train/fp8_report.h"
#include "train/load_hf.h"

namespace quintet::tests::fp8_test {
namespace {

using config::LinearKind;
using config::Recipe;
using train::Rank;

Recipe fp8_recipe(base::DType compute) {
  Recipe r = small_recipe();
  r.model.embed = 32;
  r.model.ffn = 64;
  r.model.heads = 4;
  r.model.kv_heads = 2;
  r.model.head_dim = 16;
  r.model.vocab = 272;
  r.data.seq_len = 16;
  r.precision = config::Precision::of(compute);
  r.precision.linear = LinearKind::Fp8Delayed;
  return r;
}

const std::vector<Place> kPlaces =
    code_places({{"zero 1", [](Recipe& r) { r.parallel.dp_shard = 2, r.parallel.zero = 1; }},
                 {"fewer KV heads than tp", [](Recipe& r) { r.parallel.tp = 4; }}});

TEST(Fp8, EveryLayoutRoundsAsOneRankDoes) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    Recipe r = fp8_recipe(base::DType::F64);
    place.set(r);
    expect_equal(resolved(r, 2, 2), {}, 3);
  }
}

TEST(Fp8, TheHeadInChunksUnderTensorParallelism) {
  Recipe r = fp8_recipe(base::DType::F64);
  r.precision.fp8_head = true;
  r.loss.chunk = 7;
  r.parallel.tp = 2;
  r.parallel.sequence_parallel = true;
  expect_equal(resolved(r, 2, 2), {}, 3);
}

TEST(Fp8, RecomputeChangesNoBit) {
  const auto run_with = [](config::RecomputeKind kind, std::vector<std::string> ops) {
    Recipe r = fp8_recipe(base::DType::BF16);
    r.memory.recompute = kind;
    r.memory.recompute_ops = std::move(ops);
    r = resolved(r, 2, 2);
    return run(r, tools::training_data(r, true), {}, 3);
  };
  const tools::LayoutRun none = run_with(config::RecomputeKind::None, {});
  expect_same_bits(none, run_with(config::RecomputeKind::Full, {}));
  expect_same_bits(none, run_with(config::RecomputeKind::Selective, {"norm", "activation"}));
  expect_same_bits(none, run_with(config::RecomputeKind::Selective, {"attention"}));
}

// Quantised weights are matrices too: Muon orthogonalises them and Adafactor keeps sums of rows and columns.
TEST(Fp8, OptimizersOfMatricesKeepTheSameStatesAsWithoutCodes) {
  for (config::OptimizerKind kind : {config::OptimizerKind::Muon, config::OptimizerKind::Adafactor}) {
    SCOPED_TRACE(config::name_of(kind));
    const auto states_with = [&](LinearKind linear) {
      Recipe r = fp8_recipe(base::DType::BF16);
      r.optimizer.kind = kind;
      r.precision.linear = linear;
      const compiler::Compiled c = compiler::compile(resolved(r, 1, 1), {});
      std::map<std::string, std::string> states;
      for (const graph::StateDecl& s : c.step_graph.states)
        if (s.role == graph::Role::Moment) states[s.name] = graph::to_string(s.type);
      return states;
    };
    const auto plain = states_with(LinearKind::Compute);
    EXPECT_FALSE(plain.empty());
    EXPECT_EQ(states_with(LinearKind::Fp8Delayed), plain);
  }
}

TEST(Fp8, MuonUpdatesQuantisedMatricesInEveryLayout) {
  for (const Place& place : kPlaces) {
    if (std::string_view(place.name) != "zero 3" && std::string_view(place.name) != "sp") continue;
    SCOPED_TRACE(place.name);
    Recipe r = fp8_recipe(base::DType::F64);
    r.optimizer.kind = config::OptimizerKind::Muon;
    place.set(r);
    expect_equal(resolved(r, 2, 2), {}, 3);
  }
}

// Codes of one byte, planned to the byte, in layouts that gather codes and their transposes.
TEST(Fp8, CodesOfOneByteArePlannedAndTrained) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    Recipe r = fp8_recipe(base::DType::BF16);
    place.set(r);
    r = resolved(r, 2, 2);
    const tools::LayoutRun layout = run(r, tools::training_data(r, true), {}, 3);
    for (const auto& peak : layout.peaks) EXPECT_EQ(peak.planned, peak.measured);
    for (const tools::StepState& s : layout.steps) EXPECT_TRUE(std::isfinite(s.result.loss));
  }
}

double decibels(const std::vector<double>& exact, const std::vector<double>& got) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    signal += exact[i] * exact[i];
    noise += (exact[i] - got[i]) * (exact[i] - got[i]);
  }
  return 10 * std::log10(signal / noise);
}

// The gradients of a model of one block: 20 dB together. In the second step, whose scales follow from the
// first; the weights stay.
TEST(Fp8, GradientsAreCloseToThoseOfTheFullType) {
  Recipe r = fp8_recipe(base::DType::F64);
  r.model.layers = 1;
  r.model.embed = 64;
  r.optimizer.lr = 1e-12;
  r = resolved(r, 4, 1);
  Recipe plain = r;
  plain.precision.linear = LinearKind::Compute;
  const data::Dataset text = tools::training_data(r, true);
  const tools::LayoutRun a = run(plain, text), b = run(r, text);
  EXPECT_NEAR(a.steps[1].result.loss, b.steps[1].result.loss, 0.01 * a.steps[1].result.loss);
  EXPECT_NE(a.steps[1].result.loss, b.steps[1].result.loss);
  std::vector<double> exact, got;
  for (const tools::Tensor& t : a.steps[1].gradients) {
    const std::vector<double>& other = values_of(b.steps[1].gradients, t.name);
    EXPECT_GT(decibels(t.values, other), 18) << t.name;
    exact.insert(exact.end(), t.values.begin(), t.values.end());
    got.insert(got.end(), other.begin(), other.end());
  }
  EXPECT_GT(decibels(exact, got), 20);
}

// A weight of 1000 times the usual size saturates in the step that sees it first, and in no later one.
TEST(Fp8, AnOutlierSaturatesOnce) {
  Recipe r = fp8_recipe(base::DType::BF16);
  r.optimizer.lr = 1e-3;
  r = resolved(r, 2, 2);
  const data::Batches batches = tools::training_batches(r, tools::training_data(r, true));
  std::vector<double> saturated;
  constexpr int64_t kPlanted = 2;  // from 0
  const tools::LayoutRun training = tools::run_layout(
      r, batches,
      {.steps = 6, .step = [&](Rank& rank, int64_t step) {
         if (step == kPlanted) {
           rank.visit(program::holds_weights, [&](const Rank::Piece& piece, const layout::GlobalIndex&) {
             if (piece.segment->name != "blocks.0.ffn.down.weight") return;
             const exec::HostBytes held = rank.read(piece);
             std::vector<float> all(static_cast<size_t>(piece.count));
             std::memcpy(all.data(), held.data(), static_cast<size_t>(piece.bytes()));
             all[5] = 20;
             rank.write(piece, [&](std::byte* to) {
               std::memcpy(to, all.data(), static_cast<size_t>(piece.bytes()));
             });
           });
           rank.weights_changed();
         }
         const train::StepResult result = rank.step(step, batches);
         const train::Roundings all = train::roundings_of(rank.step_sums(), rank.compiled().logical.scales);
         saturated.push_back(all[static_cast<size_t>(graph::ScaleOf::Weight)].saturated);
         EXPECT_TRUE(std::isfinite(result.loss));
         return result;
       }});
  ASSERT_EQ(saturated.size(), 6u);
  for (size_t i = 0; i < saturated.size(); ++i) EXPECT_EQ(saturated[i] > 0, i == 2) << "step " << i + 1;
}

// Scales are no part of a model: files of a model need not have them.
TEST(Fp8, AModelHasNoScales) {
  const Recipe r = resolved(fp8_recipe(base::DType::BF16), 1, 1);
  const data::Batches batches = tools::training_batches(r, tools::training_data(r, true));
  tools::run_layout(r, batches, {.steps = 1, .step = [&](Rank& rank, int64_t step) {
                                   for (const checkpoint::TensorInfo& t : train::model_tensors(rank))
                                     EXPECT_EQ(t.name.find("fp8"), std::string::npos) << t.name;
                                   return rank.step(step, batches);
                                 }});
}

// Micro-batches of a step share one scale, whatever their number.
TEST(Fp8, AccumulationRoundsAlike) {
  Recipe r = fp8_recipe(base::DType::F64);
  r.parallel.dp_shard = 2;
  r.parallel.zero = 3;
  expect_equal(resolved(r, 1, 4), {}, 3);
}

TEST(Fp8, AFrozenBlockIsQuantisedToo) {
  Recipe r = fp8_recipe(base::DType::F64);
  r.optimizer.groups = {{.match = "blocks.0.*", .kind = {}, .lr = {}, .weight_decay = {}, .update = false}};
  r.parallel.tp = 2;
  expect_equal(resolved(r, 2, 1), {}, 2);
}

}  // namespace
}  // namespace quintet::tests::fp8_test
