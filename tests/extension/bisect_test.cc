// `quintet verify --bisect` names the op that is wrong in a layout and right on one rank. The faults are
// those of a user's ops: a kernel that is wrong for a rank's part, a sharding rule that forgets a sum, an
// update that is wrong for a shard. In sound models nothing departs, in any layout.
#include "tools/bisect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/validate.h"
#include "exec/cpu/kernel.h"
#include "exec/decode/step.h"
#include "extension/channel_ops.h"
#include "extension/soft_sign.h"
#include "layout/rule.h"
#include "support/small_recipe.h"

namespace quintet::tests {
namespace {

using exec::cpu::Bound;
using exec::cpu::Kernel;

constexpr int64_t kBisectWidth = 24, kBisectBlocks = 4, kBisectTokens = 8, kBisectMicro = 2;

config::Recipe bisect_recipe(config::Parallel parallel, const compiler::ModelFn& model,
                             int64_t accumulation = 2) {
  config::Recipe r;
  r.name = "bisect";
  r.data.seq_len = kBisectTokens;
  r.model = compiler::custom_model(model, r.data.seq_len);
  r.precision = config::Precision::of(base::DType::F64);
  r.parallel = std::move(parallel);
  r.batch = {kBisectMicro * accumulation * r.parallel.dp(), kBisectMicro, accumulation};
  r.optimizer.lr = 1e-2;
  r.run.steps = 4;
  r.run.seed = 7;
  return r;
}

const compiler::OpPackage& sound(std::string_view op) {
  const auto& list = channel_packages();
  return *std::find_if(list.begin(), list.end(), [&](const auto& p) { return p.op->name == op; });
}

// The model with one package replaced.
compiler::ModelFn model_with(const compiler::OpPackage& faulty) {
  std::vector<compiler::OpPackage> packages = channel_packages();
  for (compiler::OpPackage& p : packages)
    if (p.op == faulty.op) p = faulty;
  return {
      [](const graph::BuildOptions& options) { return channel_model(options, kBisectWidth, kBisectBlocks); },
      packages};
}

tools::Bisection bisected(const config::Parallel& parallel, const compiler::ModelFn& model) {
  return tools::bisect(config::resolve(bisect_recipe(parallel, model)), {.synthetic = true, .model = model});
}

// Wrong by little, in one block, where a rank has a part of the channels.
void scale_with_a_fault(const Bound& b, bool accumulate) {
  sound("channel_scale").cpu->run(b, accumulate);
  if (b.instr->block == 3 && b.in_type(0).size(1) < kBisectWidth) b.output<double>(0)[5] *= 1 + 1e-6;
}

TEST(Bisect, NamesTheOpOfABlockWhoseKernelIsWrongOnAPart) {
  static const Kernel kFaulty = {sound("channel_scale").op, scale_with_a_fault, nullptr};
  compiler::OpPackage package = sound("channel_scale");
  package.cpu = &kFaulty;
  const compiler::ModelFn model = model_with(package);
  const tools::Bisection found =
      bisected({.dp_shard = 2, .tp = 2, .dims = {{"channels", config::DimAxis::Tp}}}, model);
  ASSERT_TRUE(found.first) << tools::to_text(found);
  EXPECT_EQ(found.first->op, "channel_scale");
  EXPECT_EQ(found.first->block, 3);
  EXPECT_EQ(found.first->phase, "forward");
  EXPECT_EQ(found.first->micro, 0);
  EXPECT_TRUE(found.first->skipped.empty()) << tools::to_text(found);
  EXPECT_FALSE(found.pass());
  const auto json = nlohmann::json::parse(tools::to_json(found));
  EXPECT_EQ(json["first_departure"]["op"], "channel_scale");
  EXPECT_EQ(json["first_departure"]["block"], 3);
  EXPECT_NE(tools::to_text(found).find("First departure: channel_scale of block 3, forward"),
            std::string::npos);
  // On whole channels the kernel is right.
  EXPECT_FALSE(bisected({.dp_shard = 2}, model).first);
}

// Of a backward pass, in the second micro-batch only, in a pipeline.
void relu_dx_with_a_fault(const Bound& b, bool accumulate) {
  sound("squared_relu_dx").cpu->run(b, accumulate);
  const int64_t rows = b.in_type(0).size(0);
  if (b.instr->block == 2 && rows < 2 * kBisectMicro * kBisectTokens)
    b.output<double>(0)[b.in_type(0).count() - 1] += 1e-9;
}

TEST(Bisect, NamesTheOpOfABackwardPass) {
  static const Kernel kFaulty = {sound("squared_relu_dx").op, relu_dx_with_a_fault, nullptr};
  compiler::OpPackage package = sound("squared_relu_dx");
  package.cpu = &kFaulty;
  const tools::Bisection found =
      bisected({.dp_shard = 2, .zero = 2, .pp = 2, .schedule = "zb-h1"}, model_with(package));
  ASSERT_TRUE(found.first) << tools::to_text(found);
  EXPECT_EQ(found.first->op, "squared_relu_dx") << tools::to_text(found);
  EXPECT_EQ(found.first->block, 2);
  EXPECT_EQ(found.first->phase, "backward");
}

// A rule that takes the rank's term of a sum over tokens for the whole sum.
void rule_without_a_sum(layout::RuleContext& c, const graph::Node& node) {
  const layout::Divided d = c.divide(node);
  std::vector<graph::ValueId> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    inputs.push_back(c.use(node.inputs[i], c.placement_of(d, i, layout::Side::Input), node));
  layout::Placement lie = c.placement_of(d, 0, layout::Side::Output);
  lie.partial = layout::without(lie.partial, c.layout().tensor);
  const graph::Node& local = c.emit(d, *node.op, inputs, node.attrs, {c.local_of(d.out[0], lie)});
  c.settle(node.outputs[0], local.outputs[0], lie);
}

TEST(Bisect, NamesTheOpWhoseRuleForgetsASum) {
  compiler::OpPackage package = sound("channel_scale_dw");
  package.rule = rule_without_a_sum;
  const tools::Bisection found = bisected({.tp = 2, .sequence_parallel = true}, model_with(package));
  ASSERT_TRUE(found.first) << tools::to_text(found);
  EXPECT_EQ(found.first->op, "channel_scale_dw") << tools::to_text(found);
  EXPECT_EQ(found.first->phase, "weight gradients");
  EXPECT_EQ(found.first->block, kBisectBlocks);  // the last block's backward pass comes first
}

// An update that is wrong where a rank has a part of the parameters.
void soft_sign_with_a_fault(const Bound& b, bool accumulate) {
  soft_sign_packages()[0].cpu->run(b, accumulate);
  exec::with_update_ranges(
      b, 1,
      [&]<class M, class V, class G, class C>(const std::vector<kernels::UpdateRange<M, V, G, C>>& ranges) {
        int64_t all = 0;
        for (const auto& r : ranges) all += r.count;
        if constexpr (std::is_same_v<M, double>)
          if (all < 15000) ranges[0].master[0] += 1e-6;
      },
      [](const auto&) {});
}

TEST(Bisect, NamesTheUpdate) {
  std::vector<compiler::OpPackage> packages = soft_sign_packages();
  static const Kernel kFaulty = {packages[0].op, soft_sign_with_a_fault, nullptr};
  packages[0].cpu = &kFaulty;
  const compiler::ModelFn model = compiler::ModelFn().use_optimizer(soft_sign, packages);
  const config::Recipe r =
      test::small_recipe({"optimizer.name=custom", "precision.compute=f64", "optimizer.lr=0.01",
                          "parallel.dp_shard=2", "parallel.zero=1", "batch.global=2"});
  const tools::Bisection found = tools::bisect(r, {.synthetic = true, .model = model});
  ASSERT_TRUE(found.first) << tools::to_text(found);
  EXPECT_EQ(found.first->op, "update [soft_sign]") << tools::to_text(found);
  EXPECT_EQ(found.first->phase, "step");
}

// Every kind of layout of built-in models: what is compared agrees.
TEST(Bisect, NothingDepartsInSoundLayouts) {
  using Sets = std::vector<std::string>;
  const std::vector<Sets> layouts = {
      {"parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2", "parallel.sequence_parallel=true"},
      {"parallel.cp=2", "parallel.cp_method=ring", "parallel.dp_shard=2", "memory.recompute=full"},
      {"parallel.cp=2", "parallel.cp_method=gather", "batch.micro=2"},
      {"parallel.cp=2", "parallel.cp_method=ulysses", "parallel.tp=2"},
      {"parallel.pp=2", "parallel.schedule=zb-h1", "parallel.dp_replicate=2", "batch.accumulation=3"},
      {"parallel.tp=4", "loss.chunk=8", "memory.recompute=selective"},
      {"model.moe.every=2", "model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=8",
       "parallel.dp_shard=4", "parallel.ep=4"},
      {"model.family=gpt2", "model.max_positions=64", "model.kv_heads=4", "model.dropout=0.1",
       "parallel.tp=2", "parallel.dp_shard=2"},
      {"model.tied=true", "parallel.pp=2", "parallel.schedule=1f1b", "parallel.tp=2"},
  };
  for (const Sets& sets : layouts) {
    const config::Recipe r = test::small_recipe({"precision.compute=f64", "optimizer.lr=0.01"}, sets);
    const tools::Bisection found = tools::bisect(r, {.synthetic = true});
    EXPECT_TRUE(found.pass()) << sets[0] << " " << sets[1] << "\n"
                              << tools::to_text(found) << tools::to_table(found.verified);
    // Ops that one of the two runs merges with others have no counterpart; the rest is compared.
    EXPECT_GT(found.compared, 50) << sets[0] << " " << sets[1] << "\n" << tools::to_text(found);
  }
}

TEST(Bisect, RunsOnCpusOnly) {
  config::Recipe r = test::small_recipe({"precision.compute=f64"});
  r.run.device = config::DeviceKind::Cuda;
  EXPECT_THROW(tools::bisect(r, {}), base::UserError);
}

}  // namespace
}  // namespace quintet::tests
