#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "published/rows.h"

namespace quintet::published {
namespace {

using config::RecomputeKind;
using hardware::Arithmetic;

ModelledRun mapped(std::string_view id) {
  Mapping m = map_run(published_row(id));
  EXPECT_TRUE(m.run.has_value()) << m.reason;
  return std::move(*m.run);
}

TEST(ReferenceMap, FullyShardedOnOneNode) {
  const ModelledRun run = mapped("TT-002");
  const config::Recipe& r = run.recipe;
  EXPECT_EQ(r.parallel.zero, 3);
  EXPECT_EQ(r.parallel.dp_shard, 8);
  EXPECT_EQ(r.batch.accumulation, 1);
  EXPECT_EQ(r.memory.recompute, RecomputeKind::Full);
  EXPECT_EQ(r.memory.recompute_every, 2);
  EXPECT_EQ(run.assumptions.cluster.accelerator.name, "h100-96gb-500w");
  EXPECT_EQ(run.assumptions.cluster.world(), 8);
  EXPECT_FALSE(run.assumptions.matmul.has_value());
  EXPECT_EQ(run.tokens_per_s, 6667);
  EXPECT_TRUE(run.stated);
}

TEST(ReferenceMap, TheEmbeddingAndTheHeadCountAsABlockWhereStagesAreUneven) {
  const ModelledRun titan = mapped("TT-013");
  EXPECT_EQ(titan.recipe.batch.micro, 1);
  EXPECT_EQ(titan.recipe.batch.accumulation, 32);
  EXPECT_EQ(titan.recipe.parallel.stages, (std::vector<int64_t>{15, 16, 16, 16, 16, 16, 16, 15}));
  const ModelledRun bridge = mapped("MBR-017");
  const auto& stages = bridge.recipe.parallel.stages;
  ASSERT_EQ(stages.size(), 32u);
  EXPECT_EQ(stages.front(), 3);
  EXPECT_EQ(stages[1], 4);
  EXPECT_EQ(stages.back(), 3);
  EXPECT_EQ(std::accumulate(stages.begin(), stages.end(), int64_t{0}), 126);
  EXPECT_EQ(bridge.assumptions.matmul, Arithmetic::FP8);
  EXPECT_EQ(bridge.assumptions.cluster.domain, 64);
  EXPECT_EQ(bridge.assumptions.stack.name, "megatron-bridge-26.06");
  EXPECT_EQ(mapped("BLM-095").recipe.parallel.stages.front(), 5);
}

TEST(ReferenceMap, ShardingWords) {
  const auto parallel = [](std::string_view id) { return mapped(id).recipe.parallel; };
  EXPECT_EQ(parallel("MOS-014").zero, 3);
  EXPECT_EQ(parallel("MOS-014").reshard_after_forward.kind, config::ReshardAfterForward::Kind::No);
  EXPECT_EQ(parallel("MOS-039").reshard_after_forward.kind, config::ReshardAfterForward::Kind::Yes);
  EXPECT_EQ(parallel("IEV-029").zero, 1);
  EXPECT_EQ(parallel("IEV-029").dp_shard, 4);
  EXPECT_EQ(parallel("IEV-029").dp_replicate, 16);
  EXPECT_EQ(parallel("MEG21-004").zero, 0);
  EXPECT_EQ(parallel("MEG21-004").dp_replicate, 32);
}

TEST(ReferenceMap, NetworksOfTheColumn) {
  EXPECT_EQ(mapped("BLM-095").assumptions.cluster.outer.name, "opa-100");
  EXPECT_EQ(mapped("BLM-095").assumptions.cluster.ports_per_device, 0.5);
  EXPECT_EQ(mapped("IEV-029").assumptions.cluster.outer.name, "roce-100");
  EXPECT_EQ(mapped("MEG21-004").assumptions.cluster.outer.name, "ib-hdr");
}

TEST(ReferenceMap, Experts) {
  const ModelledRun deepseek = mapped("MBR-120");
  const config::Model& m = deepseek.recipe.model;
  EXPECT_EQ(m.moe.experts, 256);
  EXPECT_EQ(m.moe.top_k, 8);
  EXPECT_EQ(m.moe.shared_ffn, 2048);
  EXPECT_EQ(m.mla.kv_rank, 512);
  EXPECT_EQ(m.layers, 64);  // with the work of multi-token prediction
  EXPECT_TRUE(m.moe.force_balance);
  const ModelledRun mixtral = mapped("MPF-004");
  EXPECT_EQ(mixtral.recipe.parallel.ep, 4);
  EXPECT_EQ(mixtral.recipe.parallel.etp, 2);  // without folding
  EXPECT_FALSE(mixtral.stated);               // no micro-batch
}

TEST(ReferenceMap, SpeedFromFlopsFollowsTheSourcesCount) {
  const ModelledRun gpt = mapped("MEG21-004");
  // 96 B s l h^2 (1 + s / 6h + V / 16 l h), the formula of arXiv 2104.04473, per token.
  const double h = 6144, l = 40, s = 2048, vocab = 51200;
  const double flops = 96 * l * h * h * (1 + s / (6 * h) + vocab / (16 * l * h));
  EXPECT_NEAR(gpt.tokens_per_s, 135e12 / flops, 1e-3 * gpt.tokens_per_s);
  EXPECT_EQ(gpt.convention, "from TFLOP/s, with the recomputed forward");
  const ModelledRun moe = mapped("MPF-004");
  EXPECT_NEAR(moe.tokens_per_s, 0.463 * 989.4e12 / flops_per_token(moe.recipe.model, 4096, FlopCount::Causal),
              1);
}

TEST(ReferenceMap, CountsOfFlopsDiffer) {
  const config::Model m = mapped("MOS-039").recipe.model;
  const double full = flops_per_token(m, 2048, FlopCount::Full);
  const double head = 6.0 * static_cast<double>(m.vocab * m.embed);
  // Of 2,048 keys a token attends to 1,024.5 on average; scores and weighted values are 4,096 wide each.
  EXPECT_NEAR(full - flops_per_token(m, 2048, FlopCount::Causal), 6.0 * 32 * 2 * 4096 * (2048 - 1024.5), 10);
  EXPECT_NEAR(flops_per_token(m, 2048, FlopCount::Hardware) - head, 4.0 / 3 * (full - head), 1);
}

TEST(ReferenceMap, WhatIsNotStatedIsAReason) {
  const Mapping none = map_run(published_row("OFF-002"));
  EXPECT_FALSE(none.run.has_value());
  EXPECT_EQ(none.reason, "the row does not state the model's geometry");
  PublishedRun row = published_row("TT-002");
  row.gpu = "Abacus";
  EXPECT_EQ(map_run(row).reason, "no accelerator 'Abacus' in the catalogue");
  row = published_row("TT-002");
  row.dp = 4;
  EXPECT_FALSE(map_run(row).run.has_value());
  row = published_row("TT-002");
  row.source += " LoRA";
  EXPECT_EQ(map_run(row).reason, "adapters are trained, not the model");
  row = published_row("TT-002");
  row.kv_heads = "some";
  EXPECT_EQ(map_run(row).reason, "kv_heads 'some' cannot be parsed");
  row = published_row("TT-002");
  row.global_batch = "17";
  EXPECT_FALSE(map_run(row).run.has_value());
}

TEST(ReferenceMap, AnUnknownCollectionHasNeutralTerms) {
  PublishedRun row = published_row("MBR-017");
  row.id = "ACME-1";
  row.vpp.reset();
  row.micro_batch = "";
  row.global_batch = "1536";
  const Mapping m = map_run(row);
  ASSERT_TRUE(m.run.has_value()) << m.reason;
  EXPECT_EQ(m.run->assumptions.stack.name, "neutral");
  EXPECT_EQ(m.run->assumptions.stack.matmul, 1);
  EXPECT_EQ(m.run->recipe.batch.micro, 1);
  EXPECT_EQ(m.run->recipe.parallel.schedule, "interleaved");
  EXPECT_EQ(m.run->recipe.parallel.chunks, 126 / 8) << "one block per chunk";
  EXPECT_FALSE(m.run->stated);
}

// A cell that cannot be parsed invalidates its row, not the table.
TEST(ReferenceMap, AnUnreadableCellIsAReason) {
  std::string rows(kRows);
  const std::string cell = "Llama-3.1-8B,32,";
  rows.replace(rows.find(cell), cell.size(), "Llama-3.1-8B,32 or so,");
  const auto runs = read_published_runs(std::string(kHeader) + rows, "rows");
  EXPECT_EQ(map_run(runs[0]).reason, "layers is '32 or so', not a number");
  EXPECT_TRUE(map_run(runs[1]).run.has_value());
}

TEST(ReferenceMap, MorePipelineBlocksThanLayers) {
  PublishedRun row = published_row("ZB-009");  // 22 blocks in 8 stages
  row.schedule = "1F1B-I";
  row.vpp = 3;
  const Mapping interleaved = map_run(row);
  ASSERT_TRUE(interleaved.run.has_value()) << interleaved.reason;
  EXPECT_EQ(interleaved.run->recipe.parallel.chunks, 2);
  row.schedule = "ZB-V";
  row.pp = row.gpus = 16;
  const Mapping v = map_run(row);
  ASSERT_TRUE(v.run.has_value()) << v.reason;
  EXPECT_EQ(v.run->recipe.parallel.schedule, "zb-h2");
}

}  // namespace
}  // namespace quintet::published
