// The verifier detects errors and reports them.
#include "tools/verify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "config/validate.h"

namespace quintet::tests {
namespace {

using tools::Check;
using tools::LayoutRun;

config::Recipe recipe(config::OptimizerKind optimizer = config::OptimizerKind::AdamW) {
  config::Recipe r;
  r.model = {.family = config::Family::Llama,
             .layers = 2,
             .embed = 16,
             .ffn = 24,
             .heads = 4,
             .kv_heads = 2,
             .head_dim = 4,
             .vocab = 257};
  r.data.seq_len = 8;
  r.batch = {8, 2, 2};
  r.parallel.dp_shard = 2;
  r.parallel.zero = 3;
  r.parallel.tp = 2;
  r.precision = config::Precision::of(base::DType::F64);
  r.optimizer.kind = optimizer;
  r.optimizer.lr = 1e-2;
  r.run.steps = 4;
  return config::resolve(r);
}

struct Runs {
  explicit Runs(const config::Recipe& r) : recipe(r) {
    const data::Dataset dataset = tools::training_data(r, true);
    layout = tools::run_layout(r, tools::training_batches(r, dataset), {.steps = 2});
    const config::Recipe single = tools::on_one_rank(r);
    one = tools::run_layout(single, tools::training_batches(single, dataset), {.steps = 2});
  }
  Check first_mismatch() const {
    const tools::VerifyResult result = tools::compare(recipe, layout, one);
    EXPECT_FALSE(result.pass());
    return result.pass() ? Check{} : *result.first_mismatch();
  }
  config::Recipe recipe;
  LayoutRun layout, one;
};

std::vector<double>& values(std::vector<tools::Tensor>& list, const std::string& name) {
  for (tools::Tensor& t : list)
    if (t.name == name) return t.values;
  throw std::runtime_error("no " + name);
}

TEST(Verify, PassesAndComparesEverything) {
  const tools::VerifyResult r = tools::verify(recipe(), {.steps = 2});
  EXPECT_TRUE(r.pass()) << tools::to_table(r);
  EXPECT_TRUE(r.synthetic);
  std::map<Check::Kind, int> count;
  for (const Check& c : r.checks) ++count[c.kind];
  EXPECT_EQ(count[Check::Kind::InitialWeight], 21);  // embed, head, final norm and 9 in each block
  EXPECT_EQ(count[Check::Kind::Gradient], 2 * 21);
  EXPECT_EQ(count[Check::Kind::Weight], 21);
  EXPECT_EQ(count[Check::Kind::Loss], 2);
  EXPECT_EQ(count[Check::Kind::Peak], 4);
  EXPECT_LT(r.tolerance, 1e-12);
}

TEST(Verify, AnInitialWeightMustBeBitEqual) {
  Runs runs(recipe());
  double& w = values(runs.layout.initial, "blocks.1.ffn.up.weight")[7];
  w = std::nextafter(w, 1.0);
  const Check c = runs.first_mismatch();
  EXPECT_EQ(c.kind, Check::Kind::InitialWeight);
  EXPECT_EQ(c.name, "blocks.1.ffn.up.weight");
  EXPECT_EQ(c.error, 1);
}

// The reported tensor is the first in model order, even if a later one differs more.
TEST(Verify, NamesTheFirstGradientThatDiffers) {
  Runs runs(recipe());
  for (double& g : values(runs.layout.steps[0].gradients, "blocks.0.attn.wo.weight")) g *= 1 + 1e-9;
  for (double& g : values(runs.layout.steps[0].gradients, "head.weight")) g *= 2;
  const Check c = runs.first_mismatch();
  EXPECT_EQ(c.kind, Check::Kind::Gradient);
  EXPECT_EQ(c.step, 1);
  EXPECT_EQ(c.name, "blocks.0.attn.wo.weight");
  EXPECT_NEAR(c.error, 1e-9, 1e-12);
}

TEST(Verify, FindsAnUpdateThatItsMomentsDoNotExplain) {
  for (const auto kind : {config::OptimizerKind::AdamW, config::OptimizerKind::Sgd}) {
    Runs runs(recipe(kind));
    for (double& w : values(runs.layout.steps.back().weights, "blocks.0.attn.wv.weight")) w += 1e-9;
    const Check c = runs.first_mismatch();
    EXPECT_EQ(c.kind, Check::Kind::Weight);
    EXPECT_EQ(c.name, "blocks.0.attn.wv.weight");
  }
}

// One element that was not updated in the last step, as with a wrong shard range.
TEST(Verify, FindsOneElementThatWasNotUpdated) {
  Runs runs(recipe());
  auto& steps = runs.layout.steps;
  values(steps[1].weights, "embed.weight")[3] = values(steps[0].weights, "embed.weight")[3];
  EXPECT_EQ(runs.first_mismatch().name, "embed.weight");
}

TEST(Verify, FindsLossNormMomentAndPeak) {
  const auto mismatch_after = [](const std::function<void(LayoutRun&)>& change) {
    Runs runs(recipe());
    change(runs.layout);
    return runs.first_mismatch().kind;
  };
  EXPECT_EQ(mismatch_after([](LayoutRun& r) { r.steps[0].result.loss *= 1 + 1e-10; }), Check::Kind::Loss);
  EXPECT_EQ(mismatch_after([](LayoutRun& r) { r.steps[0].result.grad_norm *= 1 + 1e-10; }),
            Check::Kind::GradientNorm);
  EXPECT_EQ(mismatch_after([](LayoutRun& r) { r.steps[1].result.tokens += 1; }), Check::Kind::Tokens);
  EXPECT_EQ(mismatch_after([](LayoutRun& r) { values(r.moments[0].tensors, "embed.weight")[5] += 1e-3; }),
            Check::Kind::Moment);
  EXPECT_EQ(mismatch_after([](LayoutRun& r) { r.peaks[2].measured -= 1; }), Check::Kind::Peak);
  EXPECT_EQ(mismatch_after([](LayoutRun& r) { r.steps[0].result.loss = std::nan(""); }), Check::Kind::Loss);
}

// With Muon, ranks that own fewer matrices than the plan has room for touch less of it, but not all of them.
TEST(Verify, FindsAPlanThatIsTooLargeForMuon) {
  for (const int64_t layers : {2, 4}) {  // 4: every rank owns as many matrices of each shape
    SCOPED_TRACE(layers);
    config::Recipe r = recipe(config::OptimizerKind::Muon);
    r.model.layers = layers;
    // Few tokens, large matrices and whole gradients: most is needed while matrices are with their owners.
    r.parallel.zero = 0;
    r.model.embed = 64;
    r.model.head_dim = 16;
    r.model.ffn = 96;
    r.data.seq_len = 2;
    r.batch = {2, 1, 1};
    Runs runs(config::resolve(r));
    EXPECT_TRUE(tools::compare(runs.recipe, runs.layout, runs.one).pass());
    for (tools::Peak& p : runs.layout.peaks) {
      EXPECT_EQ(p.uneven, layers == 2);
      p.planned *= 2;
    }
    EXPECT_EQ(runs.first_mismatch().kind, Check::Kind::Peak);
    for (tools::Peak& p : runs.layout.peaks) p.planned = p.planned / 2 + 1;
    EXPECT_EQ(runs.first_mismatch().kind, Check::Kind::Peak);
  }
}

// Loads are integers and biases are derived from them: both must be equal. A layout may touch less memory
// than planned only if its number of rows is not known in advance.
TEST(Verify, FindsLoadsLossesAndBiasesOfExperts) {
  config::Recipe r = recipe();
  r.model.ffn = 0;
  r.model.moe = {.experts = 4, .top_k = 2, .ffn = 8, .balance_loss = 0.1, .bias_rate = 0.01};
  r.parallel.ep = 4;
  r = config::resolve(r);
  const Runs runs(r);
  EXPECT_TRUE(tools::compare(r, runs.layout, runs.one).pass());
  const auto mismatch_after = [&](const std::function<void(LayoutRun&)>& change) {
    Runs changed = runs;
    change(changed.layout);
    return changed.first_mismatch();
  };
  const auto load = mismatch_after([](LayoutRun& run) {
    values(run.steps[0].sums, "blocks.1.load")[0] += 1;
    values(run.steps[0].sums, "blocks.1.load")[1] -= 1;
  });
  EXPECT_EQ(load.kind, Check::Kind::Sum);
  EXPECT_EQ(load.name, "blocks.1.load (counts)");
  EXPECT_EQ(mismatch_after([](LayoutRun& run) {
              values(run.steps[1].sums, "blocks.0.balance_loss")[0] *= 1 + 1e-6;
            }).name,
            "blocks.0.balance_loss");
  const auto bias = mismatch_after(
      [](LayoutRun& run) { values(run.steps[0].states, "blocks.0.ffn.router.bias")[2] += 1e-12; });
  EXPECT_EQ(bias.kind, Check::Kind::State);
  EXPECT_EQ(bias.name, "blocks.0.ffn.router.bias");
  EXPECT_EQ(mismatch_after([](LayoutRun& run) { run.peaks[1].measured = run.peaks[1].planned + 1; }).kind,
            Check::Kind::Peak);
}

// In 16 bits, two scores may tie. A token that changes its expert then explains a difference in that expert's
// gradient; without such a token, the difference is an error.
TEST(Verify, AChangedRoutingDecisionExplainsAGradient) {
  config::Recipe r = recipe();
  r.model.ffn = 0;
  r.model.moe = {.experts = 4, .top_k = 2, .ffn = 8};
  r.precision = config::Precision::of(base::DType::F16);
  Runs runs(config::resolve(r));
  const std::string gate = "blocks.1.ffn.experts.gate.weight";
  runs.layout = runs.one;
  const std::vector<double> exact = values(runs.one.steps[0].gradients, gate);
  const auto passes = [&](Check::Kind kind) {
    const tools::VerifyResult result = tools::compare(runs.recipe, runs.layout, runs.one);
    for (const Check& c : result.checks)
      if (c.kind == kind && !c.pass) return false;
    return true;
  };
  const double row = std::sqrt(2.0 / (8 * 8 * 2));  // one of 128 rows removed, one added
  const auto off_by = [&](double share) {
    for (size_t i = 0; i < exact.size(); ++i)
      values(runs.layout.steps[0].gradients, gate)[i] = exact[i] * (1 + share);
  };
  const auto turn = [&](const std::string& layer, double by) {
    values(runs.layout.steps[0].sums, layer + ".load")[0] += by;
    values(runs.layout.steps[0].sums, layer + ".load")[1] -= by;
  };
  double limit = 0;  // allowed for rounding alone
  for (double share = 0.01; share < 2; share += 0.01) {
    off_by(share);
    if (!passes(Check::Kind::Gradient)) break;
    limit = share;
  }
  ASSERT_LT(limit, 0.5);
  off_by(limit + 0.9 * row);
  EXPECT_FALSE(passes(Check::Kind::Gradient));
  turn("blocks.1", 1);
  EXPECT_TRUE(passes(Check::Kind::Gradient));
  EXPECT_TRUE(passes(Check::Kind::Sum));
  off_by(limit + 1.2 * row);
  EXPECT_FALSE(passes(Check::Kind::Gradient)) << "more than one token explains";
  turn("blocks.1", -1);
  turn("blocks.0", 1);  // a token differs, but not in this layer's experts
  off_by(limit + 0.9 * row);
  EXPECT_TRUE(passes(Check::Kind::Gradient));
  turn("blocks.0", -1);
  // More changes than ties explain are an error.
  turn("blocks.1", 9);
  EXPECT_FALSE(passes(Check::Kind::Sum));
}

TEST(Verify, TableAndJsonSayTheSame) {
  Runs runs(recipe());
  for (double& g : values(runs.layout.steps[0].gradients, "final_norm.weight")) g = -g;
  const tools::VerifyResult result = tools::compare(runs.recipe, runs.layout, runs.one);
  const std::string table = tools::to_table(result);
  EXPECT_NE(table.find("FAIL. First mismatch: gradients, step 1 final_norm.weight"), std::string::npos)
      << table;
  const auto json = nlohmann::json::parse(tools::to_json(result));
  EXPECT_EQ(json["pass"], false);
  EXPECT_EQ(json["first_mismatch"]["name"], "final_norm.weight");
  EXPECT_EQ(json["checks"].size(), result.checks.size());
  EXPECT_EQ(json["layout"], "dp_shard 2, zero 3, tp 2");
}

// A step that both runs skipped proves nothing, and does not spoil what it does not touch.
TEST(Verify, SkippedStepsProveNothing) {
  Runs r(recipe());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (LayoutRun* run : {&r.layout, &r.one}) {
    tools::StepState& last = run->steps.back();
    last.result.loss = last.result.grad_norm = nan;
    last.result.skipped = true;
    for (tools::Tensor& t : last.gradients) t.values.assign(t.values.size(), nan);
  }
  tools::VerifyResult result = tools::compare(r.recipe, r.layout, r.one);
  EXPECT_GT(result.blind(), 20);
  for (const Check& c : result.checks) {
    EXPECT_TRUE(std::isfinite(c.tolerance) && std::isfinite(c.error)) << tools::to_string(c.kind) << c.name;
    if (c.step == 1) {
      EXPECT_FALSE(c.blind) << tools::to_string(c.kind) << c.name;
    }
  }
  EXPECT_TRUE(result.pass()) << tools::to_table(result);
  const auto json = nlohmann::json::parse(tools::to_json(result));
  EXPECT_EQ(json.at("prove_nothing"), result.blind());
  EXPECT_EQ(json.at("comparisons"), result.checks.size());
  // One side alone is a mismatch.
  r.one.steps.back().result.loss = 1;
  EXPECT_FALSE(tools::compare(r.recipe, r.layout, r.one).pass());
}

// One gradient that overflows on both sides: the loss and the other gradients are compared, not blamed.
TEST(Verify, AnOverflowingTensorLeavesTheOthersComparable) {
  Runs r(recipe());
  const double inf = std::numeric_limits<double>::infinity();
  for (LayoutRun* run : {&r.layout, &r.one}) {
    tools::StepState& last = run->steps.back();
    last.result.grad_norm = inf;
    last.gradients[0].values[0] = inf;
  }
  r.layout.steps.back().result.loss = std::nextafter(r.one.steps.back().result.loss, 1e9);
  const tools::VerifyResult result = tools::compare(r.recipe, r.layout, r.one);
  EXPECT_TRUE(result.pass()) << tools::to_table(result);
  EXPECT_LT(result.blind(), 10);
  r.layout.steps.back().gradients[1].values[0] += 1;
  EXPECT_EQ(r.first_mismatch().name, r.one.steps.back().gradients[1].name);
}

// What is allowed for weights does not contain the difference that was observed.
TEST(Verify, TolerancesOfWeightsAreThoseOfRounding) {
  const Runs r(recipe());
  int weights = 0;
  for (const Check& c : tools::compare(r.recipe, r.layout, r.one).checks)
    if (c.kind == Check::Kind::Weight) {
      ++weights;
      EXPECT_LT(c.tolerance, 1e-12) << c.name;
    }
  EXPECT_EQ(weights, 21);
}

// The same for averages of weights, however far apart the moves are.
TEST(Verify, TolerancesOfAveragesDoNotContainTheDifference) {
  config::Recipe settings = recipe();
  settings.optimizer.ema = 0.5;
  Runs r(config::resolve(settings));
  const std::string name = "embed.weight";
  const auto average = std::find_if(r.layout.moments.begin(), r.layout.moments.end(),
                                    [](const tools::Moments& m) { return m.of_weights; });
  ASSERT_NE(average, r.layout.moments.end());
  const auto check = [&] {
    const tools::VerifyResult result = tools::compare(r.recipe, r.layout, r.one);
    const auto found = std::find_if(result.checks.begin(), result.checks.end(), [&](const Check& c) {
      return c.kind == Check::Kind::Moment && c.name == name + " " + average->name;
    });
    return found == result.checks.end() ? Check{} : *found;
  };
  EXPECT_TRUE(check().pass);
  EXPECT_LT(check().tolerance, 1e-12);
  values(r.layout.moves, name)[2] += 1e-3;
  values(average->tensors, name)[2] += 5e-4;
  EXPECT_FALSE(check().pass);
  EXPECT_LT(check().tolerance, 1e-12);
}

// Where training is chaotic, one rank differs from itself as much: the layout is not at fault.
TEST(Verify, AllowsWhatTheModelMakesOfRounding) {
  config::Recipe r = recipe();
  r.model = {.family = config::Family::Gpt2, .layers = 2, .embed = 32, .heads = 4};
  r.model.max_positions = 32;
  r.model.dropout = 0.97;
  r.data.seq_len = 32;
  r.optimizer.lr = 50;
  config::Recipe narrow = recipe();
  narrow.model.kv_heads = 4;
  narrow.model.mla = {.kv_rank = 1, .nope_dim = 2, .rope_dim = 2, .v_dim = 4};
  narrow.optimizer.lr = 50;
  config::Recipe huge = r;  // one rank differs from itself by more than the values
  huge.optimizer.lr = 1e3;
  for (const config::Recipe& bad : {r, narrow, huge}) {
    SCOPED_TRACE(fmt::format("kv_rank {}, lr {}", bad.model.mla.kv_rank, bad.optimizer.lr));
    const tools::VerifyResult result = tools::verify(config::resolve(bad), {.steps = 5});
    EXPECT_TRUE(result.pass()) << tools::to_table(result);
    EXPECT_GT(result.sensitive(), 0) << "an example of an ill-conditioned model is needed";
    for (const Check& c : result.checks)
      if (c.step == 1) {
        EXPECT_EQ(c.amplified, 0) << "before the first update there is nothing to amplify";
      }
    EXPECT_NE(tools::to_table(result).find("the model is ill-conditioned"), std::string::npos);
  }
}

TEST(Verify, StepsMustBePositive) { EXPECT_THROW(tools::verify(recipe(), {.steps = 0}), base::UserError); }

}  // namespace
}  // namespace quintet::tests
