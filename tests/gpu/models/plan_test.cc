// From an expansion to launches; needs no GPU.
#include "exec/cuda/plan.h"

#include <algorithm>

#include "compiler/compile.h"
#include "exec/cuda/kernel.h"
#include "exec/executor.h"
#include "gpu/models/support.h"

namespace quintet {
namespace {

using exec::cuda::LaunchPlan;

compiler::Compiled compile(const std::vector<std::string>& settings, int rank) {
  compiler::CompileOptions options;
  options.rank = base::RankId(rank);
  options.workspace_bytes = exec::workspace_of(exec::Device::Cuda, 1);
  return compiler::compile(test::gpu_recipe("llama", "bf16", settings), options);
}

const std::vector<std::vector<std::string>> kLayouts = {
    {},
    {"parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2", "parallel.sequence_parallel=true"},
    {"parallel.pp=2", "parallel.dp_shard=2"},
    {"parallel.cp=2", "parallel.cp_method=\"ring\""}};

TEST(LaunchPlan, EveryWaitIsAnEventOrTheOrderOfAStream) {
  for (const auto& layout : kLayouts)
    for (const bool poison : {false, true}) {
      const compiler::Compiled c = compile(layout, 1 % static_cast<int>(layout.empty() ? 1 : 2));
      const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, poison);
      ASSERT_EQ(plan.steps.size(), c.step.issues.size());
      std::vector<std::vector<size_t>> at(c.program.streams.size());
      int waits = 0;
      for (size_t i = 0; i < plan.steps.size(); ++i) {
        const program::Issue& issue = c.step.issues[i];
        at[instr_of(c.program, issue).stream.index()].push_back(i);
        const LaunchPlan::Step& step = plan.steps[i];
        const auto begin = plan.waits.begin() + step.first_wait, end = begin + step.num_waits;
        for (int w = 0; w < issue.num_waits; ++w) {
          const program::Wait& wait = c.step.waits[static_cast<size_t>(issue.first_wait + w)];
          const LaunchPlan::Step& other =
              plan.steps[at[wait.stream.index()][static_cast<size_t>(wait.position)]];
          EXPECT_TRUE(other.lane == step.lane || std::find(begin, end, other.event) != end) << i;
          ++waits;
        }
      }
      EXPECT_TRUE(layout.empty() || waits > 0);
      EXPECT_EQ(plan.not_captured.empty(), !poison);
    }
}

TEST(LaunchPlan, InputsOfAllMicroBatchesLieApart) {
  const compiler::Compiled c = compile({}, 0);
  const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
  ASSERT_EQ(plan.loads.size(), 4u);  // 8 sequences in micro-batches of 2
  int64_t at = 0;
  for (size_t m = 0; m < plan.loads.size(); ++m) {
    EXPECT_EQ(plan.loads[m].micro, static_cast<int>(m));
    for (const LaunchPlan::Load::Input& input : plan.loads[m].inputs) {
      EXPECT_GE(input.offset, std::max<int64_t>(at, sizeof(double) * std::size(exec::cuda::kHostScalars)));
      EXPECT_EQ(input.bytes, 2 * 96 * 4) << input.name;
      at = input.offset + input.bytes;
    }
  }
  EXPECT_GE(plan.staging_bytes, at);
}

TEST(LaunchPlan, SaysWhyExpertsElsewhereAreNotCaptured) {
  const compiler::Compiled c = compile({"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=32",
                                        "model.ffn=32", "parallel.dp_shard=2", "parallel.ep=2"},
                                       0);
  const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
  EXPECT_NE(plan.not_captured.find("read back in every step"), std::string::npos);
}

// Scratch is planned by a table of its own, which builds without CUDA have too: all of its ops are kernels
// here, and every instruction has a kernel and the scratch that the table says.
TEST(Workspace, IsPlannedForTheKernelsThatRun) {
  for (const graph::OpDef* op : exec::cuda::ops_with_workspace())
    EXPECT_NO_THROW(exec::cuda::find_kernel(*op)) << op->name;
  std::vector<std::vector<std::string>> layouts = kLayouts;
  layouts.push_back({"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=32", "model.ffn=32",
                     "parallel.dp_shard=2", "parallel.ep=2"});
  for (const auto& layout : layouts)
    for (const program::Body& body : compile(layout, 0).program.bodies)
      for (const program::Instr& i : body.instrs) {
        if (i.kind != program::InstrKind::Compute) continue;
        EXPECT_EQ(exec::cuda::find_kernel(*i.op).op, i.op);
        EXPECT_EQ(exec::cuda::workspace_bytes(i), i.workspace_bytes) << i.op->name;
      }
}

}  // namespace
}  // namespace quintet
