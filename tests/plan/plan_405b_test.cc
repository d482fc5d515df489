// Llama 3 405B at full size: published facts that follow from programs.
#include <gtest/gtest.h>

#include <numeric>

#include "plan/plan.h"
#include "plan/recipe_from_model.h"
#include "plan/timeline.h"
#include "program/ledger.h"

namespace quintet::plan {
namespace {

Report plan_405b(const std::string& cluster, const std::vector<std::string>& sets, int64_t seq_len,
                 int64_t batch, bool timeline = false, const compiler::DisabledPasses& disabled = {}) {
  Assumptions a;
  a.disabled_passes = disabled;
  a.cluster = hardware::parse_cluster(cluster);
  a.timeline = timeline;
  const FilledRecipe answer = recipe_from_model(
      {.model = "llama3-405b", .sets = sets, .seq_len = seq_len, .global_batch = batch}, a.cluster);
  return make_plan(answer.recipe, a);
}

// Parameters, gradients and optimizer state of the average device, in units of 1e9 bytes.
double state_gb(const Report& r) {
  double sum = 0;
  for (const RankMemory& m : r.memory.ranks)
    sum += static_cast<double>(m.by_class[0] + m.by_class[1] + m.by_class[2]);
  return sum / static_cast<double>(r.memory.ranks.size()) / 1e9;
}

// One replica on 64 devices holds 18 bytes of every parameter over 64: 114 GB, more than 80. Four replicas
// shard the optimizer's 12: 57 GB.
TEST(Plan405b, OneReplicaOnSixtyFourDoesNotFit) {
  const Report one = plan_405b("8x8 h100", {"parallel.tp=8", "parallel.pp=8"}, 8192, 64);
  EXPECT_EQ(one.parameters, 405853388800);
  EXPECT_NEAR(state_gb(one), 405.85 * 18 / 64, 1);
  EXPECT_FALSE(one.memory.fits());
  const Report four = plan_405b("32x8 h100", {"parallel.tp=8", "parallel.pp=8"}, 8192, 256);
  EXPECT_NEAR(state_gb(four), 405.85 * 9 / 64, 0.6);
}

// The two layouts of the training of Llama 3. Both have 16,384 devices.
TEST(Plan405b, PublishedLayouts) {
  const std::vector<std::string> layout = {"parallel.tp=8", "parallel.pp=16", "parallel.schedule=interleaved",
                                           "parallel.chunks=4", "memory.recompute=selective"};
  const Report base = plan_405b("2048x8 h100", layout, 8192, 2048, true, {compiler::OptionalPass::Overlap});
  EXPECT_EQ(base.time.devices, 16384);
  EXPECT_EQ(base.recipe.parallel.dp_shard, 128);
  EXPECT_TRUE(base.memory.fits());
  EXPECT_NEAR(base.time.mfu, 0.41, 0.02);  // published: 41 %, by software that computes a block in order
  EXPECT_GT(plan_405b("2048x8 h100", layout, 8192, 2048).time.mfu, base.time.mfu);

  // Tensor parallel with sequence parallel: for every block and micro-batch two gathers and two
  // reduce-scatters forward, the same backward; recompute also repeats gathers for weight gradients.
  const compiler::RankProgram& stage = base.timeline->ranks.program[1];
  const program::Ledger ledger = program::make_ledger(stage.program, stage.step);
  int64_t scatters = 0, sends = 0, blocks = 0;
  for (const program::LedgerRow& row : ledger.rows) {
    const program::Communicator& c = stage.program.comms[row.comm.index()];
    if (c.name() == "tp" && row.kind == program::CollectiveKind::ReduceScatter) scatters += row.collectives;
    if (row.kind == program::CollectiveKind::Send) sends += row.collectives;
  }
  const layout::Stages& stages = base.timeline->ranks.pipeline.stages;
  for (size_t label = 0; label < stages.of_block.size(); ++label)
    blocks += stages.rank_of_block(static_cast<int>(label)) == 1;
  EXPECT_EQ(scatters, blocks * 16 * 4);
  EXPECT_EQ(sends, 2 * 16 * 4);  // two directions x micro-batches x chunks

  const Report longer =
      plan_405b("2048x8 h100", {"parallel.tp=8", "parallel.pp=16", "parallel.cp=16", "memory.recompute=full"},
                131072, 128);
  EXPECT_EQ(longer.time.devices, 16384);
  EXPECT_EQ(longer.recipe.parallel.dp_shard, 8);
  EXPECT_TRUE(longer.memory.fits());
  EXPECT_EQ(longer.time.tokens, base.time.tokens);
}

}  // namespace
}  // namespace quintet::plan
