// An optimizer of one's own: its op, its kernel and its graph are in tests/extension/soft_sign.cc, and no
// room of src knows its name. Partitioning, merging over parameters, lowering, verification, memory plans and
// checkpointed states follow from what the op's record says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "config/print.h"
#include "config/validate.h"
#include "extension/channel_ops.h"
#include "extension/soft_sign.h"
#include "program/text.h"
#include "support/small_recipe.h"
#include "tools/run_layout.h"
#include "tools/verify.h"

namespace quintet::tests {
namespace {

compiler::ModelFn optimizer() { return compiler::ModelFn().use_optimizer(soft_sign, soft_sign_packages()); }

// A built-in model in f64, all of whose parameters are updated by the custom optimizer.
config::Recipe recipe(const std::vector<std::string>& more = {}) {
  std::vector<std::string> overrides = {"optimizer.name=custom", "precision.compute=f64",
                                        "optimizer.lr=0.01"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return test::small_recipe(overrides);
}

TEST(ExtensionOptimizer, IsOneUpdateOfAllParameters) {
  const compiler::Compiled c =
      compiler::compile(recipe({"parallel.dp_shard=2", "parallel.zero=2"}), {.model = optimizer()});
  int updates = 0;
  for (const program::Body& body : c.program.bodies)
    for (const program::Instr& instr : body.instrs)
      updates += instr.op != nullptr && instr.op->name == "soft_sign";
  EXPECT_EQ(updates, 1);
  int64_t parameters = 0, moments = 0;
  for (const graph::StateDecl& s : c.step_graph.states) {
    if (s.role == graph::Role::Gradient) ++parameters;
    if (s.slot != "soft_sign.m") continue;
    EXPECT_EQ(s.role, graph::Role::Moment);
    EXPECT_EQ(s.keep, graph::Keep::Saved) << "checkpoints hold it";
    ++moments;
  }
  EXPECT_GT(moments, 0);
  EXPECT_EQ(moments, parameters);
  const std::string text = program::to_text(c.program, c.step, {.full = true});
  const program::Program back = program::parse_text(text, optimizer().ops());
  EXPECT_EQ(program::to_text(back, program::expand(back, back.calls), {.full = true}), text);
}

// The weights after two steps, from the gradients of each step and nothing else.
TEST(ExtensionOptimizer, StepsAreThoseOfItsDefinition) {
  const config::Recipe r = recipe({"optimizer.clip_norm=0"});
  const data::Dataset data = tools::training_data(r, true);
  const tools::LayoutRun run =
      tools::run_layout(r, tools::training_batches(r, data), {.steps = 2, .model = optimizer()});
  for (size_t p = 0; p < run.initial.size(); ++p) {
    std::vector<double> w = run.initial[p].values, m(w.size(), 0.0);
    const double decay = run.settings.at(run.initial[p].name).weight_decay;
    for (const tools::StepState& step : run.steps)
      for (size_t i = 0; i < w.size(); ++i) {
        m[i] = kSoftSignBeta * m[i] + (1 - kSoftSignBeta) * step.gradients[p].values[i];
        w[i] = (1 - step.result.lr * decay) * w[i] - step.result.lr * m[i] / (std::abs(m[i]) + kSoftness);
      }
    for (size_t i = 0; i < w.size(); ++i)
      ASSERT_NEAR(run.steps.back().weights[p].values[i], w[i], 1e-14) << run.initial[p].name << " " << i;
    ASSERT_NE(run.steps.back().weights[p].values, run.initial[p].values) << run.initial[p].name;
  }
}

TEST(ExtensionOptimizer, EveryLayoutComputesWhatOneRankComputes) {
  const std::vector<std::vector<std::string>> layouts = {
      {"parallel.dp_replicate=2"},
      {"parallel.dp_shard=2", "parallel.zero=1"},
      {"parallel.dp_shard=3", "parallel.zero=2", "batch.accumulation=2"},
      {"parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2", "parallel.sequence_parallel=true"},
      {"parallel.pp=2", "batch.accumulation=2", "model.tied=true"},
      {"parallel.tp=2", "optimizer.ema=0.9", "optimizer.clip=inf"},
      {"parallel.dp_shard=2", "parallel.zero=2",
       "optimizer.groups=[{match=\"*norm*\", name=\"adamw\"}, {match=\"embed*\", lr=1e-3, "
       "weight_decay=0.3}]"},
      {"parallel.dp_shard=2", "parallel.zero=1", "parallel.ep=2", "model.moe.experts=4", "model.moe.top_k=2",
       "model.moe.first_dense=1", "model.moe.ffn=16"}};
  for (const std::vector<std::string>& layout : layouts) {
    const config::Recipe r = recipe(layout);
    const tools::VerifyResult result =
        tools::verify(r, {.steps = 3, .synthetic = true, .model = optimizer()});
    EXPECT_TRUE(result.pass()) << config::to_toml(r) << "\n" << tools::to_table(result);
  }
}

// Beside a model and ops of one's own.
TEST(ExtensionOptimizer, UpdatesACustomModel) {
  compiler::ModelFn both{[](const graph::BuildOptions& o) { return channel_model(o, 24, 2); },
                         channel_packages()};
  both.use_optimizer(soft_sign, soft_sign_packages());
  config::Recipe r;
  r.name = "extension";
  r.data.seq_len = 8;
  r.model = compiler::custom_model(both, r.data.seq_len);
  r.precision = config::Precision::of(base::DType::F64);
  r.parallel = {.dp_shard = 2, .zero = 2, .tp = 2, .dims = {{"channels", config::DimAxis::Tp}}};
  r.batch = {4, 2, 1};
  r.optimizer.kind = config::OptimizerKind::Custom;
  r.optimizer.lr = 1e-2;
  r.run.steps = 3;
  const tools::VerifyResult result =
      tools::verify(config::resolve(r), {.steps = 3, .synthetic = true, .model = both});
  EXPECT_TRUE(result.pass()) << tools::to_table(result);
}

TEST(ExtensionOptimizer, ARecipeCannotNameItAlone) {
  try {
    compiler::compile(recipe(), {});
    ADD_FAILURE() << "compiled without the optimizer";
  } catch (const base::UserError& e) {
    EXPECT_NE(std::string(e.what()).find("\"custom\" needs a program that supplies the optimizer"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace quintet::tests
