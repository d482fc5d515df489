// Storage of weights and gradients: split masters equal f32 masters bit by bit in every layout, bf16
// gradients are the rounded f32 ones; f16 trains with a loss scale.
#include <utility>

#include "base/error.h"
#include "base/split_float.h"
#include "compiler/compile.h"
#include "equivalence/checks.h"

namespace quintet::tests {
namespace {

using config::Recipe;
using train::Rank;

Recipe bf16_recipe() {
  Recipe r = small_recipe();
  r.precision = config::Precision::of(base::DType::BF16);
  return r;
}

Recipe f16_recipe() {
  Recipe r = small_recipe();
  r.precision = config::Precision::of(base::DType::F16);
  return r;
}

Recipe with_experts(Recipe r) {
  r.model.moe.experts = 4;
  r.model.moe.top_k = 2;
  r.model.moe.ffn = r.model.ffn;
  return r;
}

struct Place {
  const char* name;
  void (*set)(Recipe& r);
  bool experts = false;
};

const Place kPlaces[] = {
    {"one rank", [](Recipe&) {}},
    {"ddp", [](Recipe& r) { r.parallel.dp_replicate = 2; }},
    {"zero 1", [](Recipe& r) { r.parallel.dp_shard = 2, r.parallel.zero = 1; }},
    {"zero 2", [](Recipe& r) { r.parallel.dp_shard = 2, r.parallel.zero = 2; }},
    {"zero 3", [](Recipe& r) { r.parallel.dp_shard = 3, r.parallel.zero = 3; }},
    {"hsdp", [](Recipe& r) { r.parallel.dp_replicate = 2, r.parallel.dp_shard = 2, r.parallel.zero = 3; }},
    {"tp", [](Recipe& r) { r.parallel.tp = 2, r.parallel.sequence_parallel = true; }},
    {"pp",
     [](Recipe& r) {
       r.parallel.pp = 2, r.parallel.schedule = "zb-h1", r.parallel.chunks = 1, r.model.layers = 2;
       r.model.tied = true;
     }},
    {"ep", [](Recipe& r) { r.parallel.dp_shard = 2, r.parallel.zero = 3, r.parallel.ep = 2; }, true},
};

Recipe placed(const Place& place, Recipe r, int64_t accumulation) {
  if (place.experts) r = with_experts(r);
  place.set(r);
  return resolved(r, 2, accumulation);
}

// Copies of f32 masters round ties to even, upper halves of split masters away from zero: without ties the
// two are equal.
void break_ties(Rank& rank) {
  rank.visit(program::holds_weights, [&](const Rank::Piece& piece, const layout::GlobalIndex&) {
    ASSERT_EQ(piece.dtype, base::DType::F32);
    const exec::HostBytes held = rank.read(piece);
    std::vector<uint32_t> bits(static_cast<size_t>(piece.count));
    std::memcpy(bits.data(), held.data(), static_cast<size_t>(piece.bytes()));
    for (uint32_t& b : bits)
      if ((b & 0xffffu) == 0x8000u) b |= 1;
    rank.write(piece,
               [&](std::byte* to) { std::memcpy(to, bits.data(), static_cast<size_t>(piece.bytes())); });
  });
  rank.weights_changed();
}

tools::LayoutRun run_without_ties(const Recipe& r) {
  const data::Batches batches = tools::training_batches(r, tools::training_data(r, true));
  return tools::run_layout(r, batches, {.steps = 4, .step = [&](Rank& rank, int64_t step) {
                                          break_ties(rank);
                                          return rank.step(step, batches);
                                        }});
}

// For a run whose first scale is too large: it is halved with every skipped step, which changes no weight,
// until gradients are finite.
void expect_falling_scale(const tools::LayoutRun& a, double scale) {
  int good = 0;
  for (size_t t = 0; t < a.steps.size(); ++t) {
    const train::StepResult& s = a.steps[t].result;
    EXPECT_EQ(s.loss_scale, scale);
    EXPECT_TRUE(std::isfinite(s.loss));
    if (s.skipped) {
      expect_same(t == 0 ? a.initial : a.steps[t - 1].weights, a.steps[t].weights);
      scale /= 2;
    }
    good += !s.skipped;
  }
  EXPECT_TRUE(a.steps[0].result.skipped);
  EXPECT_GT(good, 0) << "at " << scale;
}

TEST(SplitMasters, AreTheF32MastersInEveryLayout) {
  for (const Place& place : kPlaces)
    for (const bool sgd : {false, true}) {
      SCOPED_TRACE(std::string(place.name) + (sgd ? ", sgd" : ", adamw"));
      Recipe r = bf16_recipe();
      if (sgd) {
        r.optimizer.kind = config::OptimizerKind::Sgd;
        r.optimizer.momentum = 0.9;
        r.optimizer.lr = 0.05;
      }
      const Recipe whole = placed(place, r, 2);
      Recipe split = whole;
      split.precision.master = config::Master::Split;
      const tools::LayoutRun a = run_without_ties(whole), b = run_without_ties(split);
      expect_same(a.initial, b.initial);
      expect_same_bits(a, b);
      for (size_t rank = 0; rank < b.peaks.size(); ++rank) {
        EXPECT_EQ(b.peaks[rank].planned, b.peaks[rank].measured);
        EXPECT_LT(b.peaks[rank].planned, a.peaks[rank].planned);
      }
    }
}

// The average of the weights against a plain loop over the weights of every step.
TEST(Ema, AveragesTheWeightsOfEveryUpdate) {
  for (const Place& place : kPlaces)
    for (const bool split : {false, true}) {
      SCOPED_TRACE(std::string(place.name) + (split ? ", split" : ", f32"));
      Recipe r = bf16_recipe();
      if (split) r.precision.master = config::Master::Split;
      const Recipe plain = placed(place, r, 2);
      Recipe averaged = plain;
      averaged.optimizer.ema = 0.75;
      const data::Dataset dataset = tools::training_data(plain, true);
      const tools::LayoutRun without = run(plain, dataset, {}, 3), with = run(averaged, dataset, {}, 3);
      ASSERT_EQ(with.moments.size(), 3u);
      const tools::Moments& ema = with.moments[2];
      EXPECT_EQ(ema.name, "ema");
      for (size_t t = 0; t < ema.tensors.size(); ++t) {
        std::vector<float> expected(with.initial[t].values.begin(), with.initial[t].values.end());
        ASSERT_EQ(with.initial[t].name, ema.tensors[t].name);
        for (const tools::StepState& s : with.steps)
          for (size_t i = 0; i < expected.size(); ++i)
            expected[i] += 0.25f * (static_cast<float>(s.weights[t].values[i]) - expected[i]);
        EXPECT_EQ(ema.tensors[t].values, std::vector<double>(expected.begin(), expected.end()))
            << ema.tensors[t].name;
      }
      expect_same(without.steps.back().weights, with.steps.back().weights);
      int64_t bytes = 0;
      for (size_t rank = 0; rank < with.peaks.size(); ++rank) {
        EXPECT_EQ(with.peaks[rank].planned, with.peaks[rank].measured);
        bytes += with.peaks[rank].planned - without.peaks[rank].planned;
      }
      int64_t weights = 0;
      for (const tools::Tensor& t : ema.tensors) weights += static_cast<int64_t>(t.values.size());
      EXPECT_GE(bytes, 4 * weights);
    }
}

// The scale doubles until a step overflows, when weights and their average have long parted.
TEST(Ema, ASkippedStepLeavesItAlone) {
  Recipe r = placed(kPlaces[1], f16_recipe(), 1);
  r.optimizer.ema = 0.75;
  r.precision.loss_scale.dynamic = true;
  r.precision.loss_scale_start = 0x1p10;
  r.precision.loss_scale_window = 1;
  const data::Dataset dataset = tools::training_data(r, true);
  const tools::LayoutRun all = run(r, dataset, {}, 16);
  int64_t skipped = 0;
  while (skipped < 16 && !all.steps[static_cast<size_t>(skipped)].result.skipped) ++skipped;
  ASSERT_GT(skipped, 1);
  ASSERT_LT(skipped, 16);
  const tools::LayoutRun before = run(r, dataset, {}, skipped), after = run(r, dataset, {}, skipped + 1);
  ASSERT_EQ(after.moments.back().name, "ema");
  EXPECT_NE(after.moments.back().tensors[0].values, after.steps.back().weights[0].values);
  expect_same(before.moments.back().tensors, after.moments.back().tensors);
}

// In f64 the numbers of two layouts are so near to each other that the same random number rounds them alike:
// moments of every layout are those of one rank.
TEST(StochasticMoments, EveryLayoutRoundsAlike) {
  for (const Place& place : kPlaces)
    for (const auto kind : {config::OptimizerKind::AdamW, config::OptimizerKind::Sgd,
                            config::OptimizerKind::Lamb, config::OptimizerKind::Muon}) {
      SCOPED_TRACE(place.name);
      Recipe r = small_recipe();
      r.precision.moments_rounding = config::MomentsRounding::Stochastic;
      r.optimizer.kind = kind;
      if (kind == config::OptimizerKind::Sgd) r.optimizer.momentum = 0.9;
      if (kind != config::OptimizerKind::AdamW && place.experts) continue;  // AdamW has been there
      expect_equal(placed(place, r, 2), {}, 3);
    }
}

TEST(StochasticMoments, AreBf16AndNotTheNearest) {
  for (const bool split : {false, true}) {
    Recipe nearest = bf16_recipe();
    nearest.precision.moments = base::DType::BF16;
    if (split) nearest.precision.master = config::Master::Split;
    nearest = placed(kPlaces[4], nearest, 1);
    Recipe stochastic = nearest;
    stochastic.precision.moments_rounding = config::MomentsRounding::Stochastic;
    const data::Dataset dataset = tools::training_data(nearest, true);
    const tools::LayoutRun a = run(nearest, dataset), b = run(stochastic, dataset),
                           c = run(stochastic, dataset);
    expect_same_bits(b, c);
    int64_t differ = 0, all = 0;
    for (size_t k = 0; k < b.moments.size(); ++k)
      for (size_t t = 0; t < b.moments[k].tensors.size(); ++t)
        for (size_t i = 0; i < b.moments[k].tensors[t].values.size(); ++i) {
          const double x = a.moments[k].tensors[t].values[i], y = b.moments[k].tensors[t].values[i];
          EXPECT_EQ(static_cast<double>(static_cast<float>(base::Bf16(static_cast<float>(y)))), y);
          differ += x != y;
          ++all;
        }
    EXPECT_GT(differ, all / 8);
    for (size_t rank = 0; rank < b.peaks.size(); ++rank) {
      EXPECT_EQ(b.peaks[rank].planned, b.peaks[rank].measured);
      EXPECT_EQ(b.peaks[rank].planned, a.peaks[rank].planned);
    }
  }
}

Recipe eight_bit(Recipe r) {
  r.optimizer.kind = config::OptimizerKind::AdamW8bit;
  r.optimizer.block_size = 8;
  r.model.ffn = 32;
  return r;
}

TEST(EightBit, EveryLayoutHasTheBlocksOfOneRank) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    expect_equal(placed(place, eight_bit(small_recipe()), 2), {}, 3);
  }
}

// Codes of one byte and one f32 scale for 8 elements: 3 bytes per parameter and the padding of blocks,
// instead of AdamW's 8.
TEST(EightBit, TakesTheBytesThatArePlanned) {
  for (const Place& place : kPlaces)
    for (const bool split : {false, true}) {
      SCOPED_TRACE(place.name);
      Recipe r = eight_bit(bf16_recipe());
      if (split) r.precision.master = config::Master::Split;
      const Recipe narrow = placed(place, r, 2);
      Recipe wide = narrow;
      wide.optimizer.kind = config::OptimizerKind::AdamW;
      wide.optimizer.block_size = config::Optimizer{}.block_size;
      const data::Dataset dataset = tools::training_data(narrow, true);
      const tools::LayoutRun a = run(wide, dataset), b = run(narrow, dataset);
      int64_t saved = 0, parameters = 0;
      for (size_t rank = 0; rank < b.peaks.size(); ++rank) {
        EXPECT_EQ(b.peaks[rank].planned, b.peaks[rank].measured);
        saved += a.peaks[rank].planned - b.peaks[rank].planned;
      }
      for (const tools::Tensor& t : b.steps[0].gradients) parameters += static_cast<int64_t>(t.values.size());
      EXPECT_GT(saved, 4 * parameters);
      // The first step's weights do not depend on how moments are stored, but for rounding in f32.
      for (size_t i = 0; i < a.steps[0].weights.size(); ++i) {
        const std::vector<double>&x = a.steps[0].weights[i].values, &y = b.steps[0].weights[i].values;
        for (size_t k = 0; k < x.size(); ++k)
          ASSERT_NEAR(x[k], y[k], 1e-6) << a.steps[0].weights[i].name << " " << k;
      }
    }
}

TEST(EightBit, ALayoutThatCutsBlocksIsRefused) {
  Recipe r = eight_bit(small_recipe());
  r.model.ffn = 0;
  r.model.moe = {.experts = 2, .top_k = 1, .ffn = 5};
  r.model.embed = 18;
  r.parallel.dp_shard = 2, r.parallel.zero = 1, r.parallel.ep = 2;
  const Recipe cut = resolved(r, 2, 1);
  try {
    compiler::compile(cut, {});
    FAIL() << "compiled";
  } catch (const base::UserError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("experts"), std::string::npos) << text;
    EXPECT_NE(text.find("90 consecutive elements"), std::string::npos) << text;
    EXPECT_NE(text.find("optimizer.block_size = 8"), std::string::npos) << text;
  }
}

TEST(SplitMasters, OnlyTiesAreRoundedDifferently) {
  Recipe whole = placed(kPlaces[0], bf16_recipe(), 1), split = whole;
  split.precision.master = config::Master::Split;
  const data::Dataset dataset = tools::training_data(whole, true);
  const tools::LayoutRun a = run(whole, dataset, {}, 8), b = run(split, dataset, {}, 8);
  expect_same(a.initial, b.initial);
  for (size_t t = 0; t < a.steps.size(); ++t)
    EXPECT_NEAR(a.steps[t].result.loss, b.steps[t].result.loss, 2e-3 * a.steps[t].result.loss);
}

TEST(NarrowGradients, AreTheF32GradientsRounded) {
  for (const bool experts : {false, true}) {
    Recipe wide = bf16_recipe();
    wide.model.qk_norm = true;
    wide.model.qkv_bias = true;
    wide.loss.chunk = 0;
    if (experts) wide = with_experts(wide);
    wide = resolved(wide, 2, 1);
    Recipe narrow = wide;
    narrow.precision.gradients = narrow.precision.reduce = base::DType::BF16;
    const data::Dataset dataset = tools::training_data(wide, true);
    const tools::LayoutRun a = run(wide, dataset, {}, 1), b = run(narrow, dataset, {}, 1);
    EXPECT_EQ(a.steps[0].result.loss, b.steps[0].result.loss);
    const auto &x = a.steps[0].gradients, &y = b.steps[0].gradients;
    ASSERT_EQ(x.size(), y.size());
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t k = 0; k < x[i].values.size(); ++k) {
        const auto rounded = static_cast<float>(base::Bf16(static_cast<float>(x[i].values[k])));
        ASSERT_EQ(static_cast<double>(rounded), y[i].values[k]) << x[i].name << " " << k;
        sum += y[i].values[k] * y[i].values[k];
      }
    EXPECT_NEAR(b.steps[0].result.grad_norm, std::sqrt(sum), 1e-9 * std::sqrt(sum));
  }
}

TEST(NarrowGradients, LayoutsStayWithinTheBounds) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    Recipe r = placed(place, bf16_recipe(), 2);
    r.precision.master = config::Master::Split;
    r.precision.gradients = r.precision.reduce = base::DType::BF16;
    expect_equal(r);
    r.precision.reduce = base::DType::F32;  // reduced in f32 and rounded again
    expect_equal(r);
  }
}

TEST(NarrowGradients, TakeHalfTheBytes) {
  Recipe wide = placed(kPlaces[1], bf16_recipe(), 2), narrow = wide;
  narrow.precision.gradients = narrow.precision.reduce = base::DType::BF16;
  const data::Dataset dataset = tools::training_data(wide, true);
  const auto peak = [&](const Recipe& r) { return run(r, dataset).peaks[0]; };
  const tools::Peak a = peak(wide), b = peak(narrow);
  EXPECT_EQ(b.planned, b.measured);
  EXPECT_LT(b.planned, a.planned);
}

// ---- loss scaling

// A dynamic scale starts at its value.
Recipe scaled(Recipe r, config::LossScale scale, int64_t window = 2000) {
  if (scale.dynamic) r.precision.loss_scale_start = std::exchange(scale.value, 1);
  r.precision.loss_scale = scale;
  r.precision.loss_scale_window = window;
  return r;
}

// Powers of two change no digit, neither of unscaled gradients nor of weights, in any layout.
TEST(LossScale, ChangesNoBitOfTheWeights) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    Recipe r = small_recipe();
    r.precision = config::Precision::of(base::DType::F32);
    r.model.moe.balance_loss = place.experts ? 0.01 : 0;
    const Recipe plain = placed(place, r, 2);
    const data::Dataset dataset = tools::training_data(plain, true);
    const tools::LayoutRun a = run(plain, dataset, {}, 3),
                           b = run(scaled(plain, {false, 1024}), dataset, {}, 3);
    for (size_t t = 0; t < a.steps.size(); ++t) {
      EXPECT_EQ(a.steps[t].result.loss, b.steps[t].result.loss);
      EXPECT_EQ(a.steps[t].result.grad_norm, b.steps[t].result.grad_norm);
      EXPECT_EQ(b.steps[t].result.loss_scale, 1024);
      expect_same(a.steps[t].weights, b.steps[t].weights);
      expect_same(a.steps[t].gradients, b.steps[t].gradients);
    }
  }
}

// A scale at which gradients overflow is halved until they do not; until then nothing is updated on any rank.
TEST(LossScale, FallsUntilGradientsAreFinite) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    Recipe r = small_recipe();
    r.precision = config::Precision::of(base::DType::F32);
    const Recipe plain = placed(place, r, 2);
    const double scale = 0x1p136;
    const Recipe wild = scaled(plain, {true, scale});
    const data::Dataset dataset = tools::training_data(plain, true);
    const tools::LayoutRun a = run(wild, dataset, {}, 14);
    expect_falling_scale(a, scale);
    for (const tools::StepState& step : a.steps) {
      EXPECT_EQ(step.result.skipped_in_row, 0) << "a smaller loss scale avoids the overflow";
      EXPECT_EQ(std::isfinite(step.result.grad_norm), !step.result.skipped);
    }
  }
}

TEST(LossScale, GrowsAfterGoodSteps) {
  Recipe r = small_recipe();
  r.precision = config::Precision::of(base::DType::F32);
  r = scaled(placed(kPlaces[4], r, 1), {true, 4}, 3);
  const tools::LayoutRun a = run(r, tools::training_data(r, true), {}, 8);
  std::vector<double> scales;
  for (const tools::StepState& s : a.steps) scales.push_back(s.result.loss_scale);
  EXPECT_EQ(scales, (std::vector<double>{4, 4, 4, 8, 8, 8, 16, 16}));
}

std::vector<double> scales_of(const tools::LayoutRun& run) {
  std::vector<double> scales;
  for (const tools::StepState& s : run.steps) scales.push_back(s.result.loss_scale);
  return scales;
}

// The first overflow since the scale was last doubled is borne with, later ones halve it; the state is
// equal in every layout.
TEST(LossScale, HysteresisBearsWithTheFirstOverflow) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    Recipe r = small_recipe();
    r.precision = config::Precision::of(base::DType::F32);
    r = scaled(placed(place, r, 2), {true, 0x1p140});
    r.precision.loss_scale_hysteresis = 3;
    const tools::LayoutRun a = run(r, tools::training_data(r, true), {}, 5);
    EXPECT_EQ(scales_of(a), (std::vector<double>{0x1p140, 0x1p140, 0x1p140, 0x1p139, 0x1p138}));
    for (const tools::StepState& s : a.steps) EXPECT_TRUE(s.result.skipped);
  }
}

// Growing gives the whole hysteresis back: 2^120 doubles every step until it overflows, bears with that
// once and halves; two good steps later it has doubled again and bears with the next overflow, too.
TEST(LossScale, GrowingRestoresTheHysteresis) {
  Recipe r = small_recipe();
  r.precision = config::Precision::of(base::DType::F32);
  r = scaled(placed(kPlaces[4], r, 1), {true, 0x1p120}, 1);
  r.precision.loss_scale_hysteresis = 2;
  const tools::LayoutRun a = run(r, tools::training_data(r, true), {}, 24);
  int64_t overflows = 0, borne = 0;
  const std::vector<double> scales = scales_of(a);
  for (size_t t = 0; t + 1 < scales.size(); ++t) {
    if (!a.steps[t].result.skipped) {
      EXPECT_EQ(scales[t + 1], 2 * scales[t]) << t;
      overflows = 0;
      continue;
    }
    EXPECT_EQ(scales[t + 1], ++overflows < 2 ? scales[t] : scales[t] / 2) << t;
    borne += overflows == 1;
  }
  EXPECT_GE(borne, 2);
}

TEST(LossScale, NeverFallsBelowItsMinimum) {
  Recipe r = small_recipe();
  r.precision = config::Precision::of(base::DType::F32);
  r = scaled(placed(kPlaces[4], r, 1), {true, 0x1p140});
  r.precision.loss_scale_min = 0x1p138;
  const tools::LayoutRun a = run(r, tools::training_data(r, true), {}, 5);
  EXPECT_EQ(scales_of(a), (std::vector<double>{0x1p140, 0x1p139, 0x1p138, 0x1p138, 0x1p138}));
  // An overflow that no smaller scale can avoid counts towards the steps after which a run stops.
  EXPECT_EQ(a.steps[2].result.skipped_in_row, 1);
  EXPECT_EQ(a.steps[4].result.skipped_in_row, 3);
}

// Below 1 gradients of sums over many tokens fit a narrow type.
TEST(LossScale, MayStartAndStayBelowOne) {
  Recipe r = small_recipe();
  r.precision = config::Precision::of(base::DType::F32);
  r = scaled(placed(kPlaces[4], r, 1), {true, 0.25});
  r.precision.loss_scale_min = 0.125;
  const tools::LayoutRun a = run(r, tools::training_data(r, true), {}, 3);
  EXPECT_EQ(scales_of(a), (std::vector<double>{0.25, 0.25, 0.25}));
}

// Only one label of the first step counts, so the gradients of one rank alone are not finite: all ranks skip,
// keep their weights, and lower the scale. (Results and replicas of ranks are compared where they run.)
TEST(LossScale, OverflowOnOneRankSkipsTheStepOnAll) {
  for (const int64_t zero : {0, 1, 3})
    for (const int64_t sequence : {0, 3}) {
      Recipe r = small_recipe();
      r.precision = config::Precision::of(base::DType::F32);
      (zero == 0 ? r.parallel.dp_replicate : r.parallel.dp_shard) = 2;
      r.parallel.zero = zero;
      r = scaled(resolved(r, 2, 1), {true, 0x1p140});
      ASSERT_EQ(r.batch.global, 4);
      const tools::LayoutRun a = run(r, tools::training_data(r, true), only(sequence, 2), 2);
      EXPECT_TRUE(a.steps[0].result.skipped);
      EXPECT_EQ(a.steps[0].result.tokens, 1);
      expect_same(a.initial, a.steps[0].weights);
      EXPECT_EQ(a.steps[1].result.loss_scale, 0x1p139);
    }
}

// ---- f16

TEST(F16, LayoutsGiveOneRanksNumbers) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    expect_equal(placed(place, f16_recipe(), 2));
  }
}

// Numbers of 11 bits compared with those of 53, on one rank and on four.
TEST(F16, StaysNearF64) {
  for (const bool experts : {false, true})
    for (const bool four : {false, true}) {
      SCOPED_TRACE(std::string(experts ? "experts" : "dense") + (four ? ", four ranks" : ""));
      Recipe narrow = f16_recipe();
      if (experts) narrow = with_experts(narrow);
      if (four) narrow.parallel.dp_shard = 2, narrow.parallel.zero = 3, narrow.parallel.tp = 2;
      narrow = resolved(narrow, 2, 1);
      Recipe wide = narrow;
      wide.precision = config::Precision::of(base::DType::F64);
      const data::Dataset dataset = tools::training_data(narrow, true);
      const tools::LayoutRun a = run(narrow, dataset, {}, 2), b = run(wide, dataset, {}, 2);
      for (size_t t = 0; t < a.steps.size(); ++t) {
        const train::StepResult &x = a.steps[t].result, &y = b.steps[t].result;
        EXPECT_FALSE(x.skipped);
        EXPECT_NEAR(x.loss, y.loss, 2e-3 * y.loss);
        EXPECT_NEAR(x.grad_norm, y.grad_norm, 2e-2 * y.grad_norm);
        double difference = 0, size = 0;
        for (size_t i = 0; i < a.steps[t].gradients.size(); ++i)
          for (size_t k = 0; k < a.steps[t].gradients[i].values.size(); ++k) {
            const double want = b.steps[t].gradients[i].values[k];
            difference += std::pow(a.steps[t].gradients[i].values[k] - want, 2);
            size += want * want;
          }
        // A token whose experts are nearly tied may be routed elsewhere.
        EXPECT_LT(std::sqrt(difference), (experts ? 0.1 : 0.02) * std::sqrt(size));
        EXPECT_GT(difference, 0);
      }
      for (const tools::Peak& p : a.peaks) EXPECT_EQ(p.planned, p.measured);
    }
}

TEST(F16, TracksTheLossesOfF32) {
  const Recipe narrow = resolved(f16_recipe(), 2, 1);
  Recipe wide = narrow;
  wide.precision = config::Precision::of(base::DType::F32);
  const data::Dataset dataset = tools::training_data(narrow, true);
  const tools::LayoutRun a = run(narrow, dataset, {}, 40), b = run(wide, dataset, {}, 40);
  for (size_t t = 0; t < a.steps.size(); ++t) {
    EXPECT_FALSE(a.steps[t].result.skipped) << t;
    EXPECT_NEAR(a.steps[t].result.loss, b.steps[t].result.loss, 5e-3 * b.steps[t].result.loss) << t;
  }
  EXPECT_LT(a.steps.back().result.loss, a.steps.front().result.loss);
}

// 16-bit gradients overflow at scales that f32 would tolerate: the step is skipped on all ranks.
TEST(F16, OverflowLowersTheScale) {
  for (const Place& place : kPlaces) {
    SCOPED_TRACE(place.name);
    const double scale = 0x1p24;
    const Recipe r = scaled(placed(place, f16_recipe(), 2), {true, scale});
    const tools::LayoutRun a = run(r, tools::training_data(r, true), {}, 20);
    expect_falling_scale(a, scale);
  }
}

}  // namespace
}  // namespace quintet::tests
