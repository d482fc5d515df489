#include "tools/bench_step.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "models/build.h"
#include "passes/recompute.h"
#include "support/small_recipe.h"

namespace quintet {
namespace {

config::Recipe small(const std::vector<std::string>& sets = {}) {
  return test::small_recipe({"model.layers=3", "model.embed=32", "model.vocab=256", "data.seq_len=16",
                             "batch.global=4", "run.threads=1"},
                            sets);
}

TEST(BenchStep, CountsTheModelsFlops) {
  const auto flops = [](const config::Recipe& r) {
    const graph::Graph model = models::build(r.model, {.tokens = 16, .seq_len = 16});
    // Recompute is not part of the model's work.
    const graph::Graph again =
        passes::recompute(model, passes::chosen(model, {.recompute = config::RecomputeKind::Full}));
    EXPECT_EQ(tools::model_flops_per_token(again, 16), tools::model_flops_per_token(model, 16));
    return tools::model_flops_per_token(model, 16);
  };
  // Q and O 32 x 32, K and V 16 x 32, gate, up and down 48 x 32; the head 256 x 32. Of 16 tokens, each
  // attends to 8.5 on average.
  const double block = 2 * 32 * 32 + 2 * 16 * 32 + 3 * 48 * 32, head = 256 * 32;
  const double attention = 6.0 * 3 * 4 * (8 + 8) * 8.5;
  EXPECT_EQ(flops(small()), 6 * (3 * block + head) + attention);
  EXPECT_EQ(flops(small({"model.tied=true"})), 6 * (3 * block + head) + attention);
  // A window of 4: 1, 2, 3 and thirteen times 4 keys.
  EXPECT_DOUBLE_EQ(flops(small({"model.sliding_window=4"})),
                   6 * (3 * block + head) + attention / 8.5 * (1 + 2 + 3 + 13 * 4) / 16);
  // Two of eight experts, and the router.
  const double experts = 2 * 32 * 32 + 2 * 16 * 32 + 2 * 3 * 24 * 32 + 8 * 32;
  EXPECT_EQ(flops(small({"model.moe.experts=8", "model.moe.top_k=2", "model.moe.ffn=24", "model.ffn=24"})),
            6 * (3 * experts + head) + attention);
}

// Documents in order, starting over after the last, truncated where a sequence ends.
TEST(BenchStep, PacksDocuments) {
  const tools::PackedRows rows = tools::pack_documents({3, 2}, 2, 7);
  EXPECT_EQ(rows.documents, (std::vector<int32_t>{0, 0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 1, 2, 2}));
  EXPECT_EQ(rows.positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 0, 1, 0, 1, 0, 1, 2, 0, 1}));
  const tools::PackedRows whole = tools::pack_documents({}, 2, 3);
  EXPECT_EQ(whole.documents, (std::vector<int32_t>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(whole.positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(tools::parse_document_lengths("12 7\n300\n", "f"), (std::vector<int64_t>{12, 7, 300}));
  EXPECT_THROW(tools::parse_document_lengths("12 0", "f"), base::UserError);
  EXPECT_THROW(tools::parse_document_lengths("12 7x", "f"), base::UserError);
  EXPECT_THROW(tools::parse_document_lengths(" ", "f"), base::UserError);
  EXPECT_THROW(tools::bench_step(small({"data.pack=false"}), {.document_lengths = {4}}), base::UserError);
  // Documents of 4 tokens, in sequences of 16: 2.5 keys a query instead of 8.5.
  const auto whole_flops = tools::bench_step(small({}), {.steps = 1, .warmup = 3})->model_flops,
             packed_flops = tools::bench_step(small({}), {.steps = 1, .warmup = 3, .document_lengths = {4}})
                                ->model_flops;
  const double attention = 6.0 * 3 * 32 * 2 * 8.5 * 64;  // layers, heads times (qk + v), keys, tokens
  EXPECT_NEAR(whole_flops - packed_flops, attention * (1 - 2.5 / 8.5), 1e-9 * whole_flops);
}

TEST(BenchStep, RunsOnTheCpu) {
  const auto bench = tools::bench_step(
      small({"parallel.dp_shard=2", "parallel.zero=3"}),
      {.steps = 2, .warmup = 3, .warmup_seconds = 0.05, .peak_tflops = 1, .alone_seconds = 0.01});
  ASSERT_TRUE(bench);
  EXPECT_EQ(bench->world, 2);
  EXPECT_EQ(bench->tokens_per_step, 64);
  EXPECT_GT(bench->tokens_per_s, 0);
  EXPECT_DOUBLE_EQ(bench->mfu, bench->tflops);
  EXPECT_EQ(bench->planned_bytes, bench->measured_bytes);
  EXPECT_GE(bench->program_flops, 0.9 * bench->model_flops);
  bool matmul = false, communication = false;
  for (const tools::OpClassTime& c : bench->classes) {
    matmul |= c.name == "matmul" && c.instructions > 0 && c.seconds > 0;
    communication |= c.name == "communication";
  }
  EXPECT_TRUE(matmul && communication) << tools::to_table(*bench);
  EXPECT_NE(tools::to_table(*bench).find("floors: not measured"), std::string::npos);
  const auto json = nlohmann::json::parse(tools::to_json(*bench));
  EXPECT_GE(json["until_first_step_s"].get<double>() + 0.02,
            json["setup_s"].get<double>() + json["first_step_s"].get<double>());
  EXPECT_EQ(json["tokens_per_step"], 64);
  EXPECT_EQ(json["op_classes"].size(), bench->classes.size());
}

TEST(BenchStep, FloorsAreComparedWithTheStep) {
  tools::StepBench b;
  b.step_seconds = 0.011;
  b.copy_bytes_per_s = 4e12;
  b.classes = {{"matmul", 1, 0.008, 0.010, 0.010}, {"norm", 1, 0.002, 0.002, 0.0015}};
  b.floor_seconds = 0.0115;
  EXPECT_NE(tools::to_table(b).find("11.000 ms, 0.957 x the sum of its floors, 11.500 ms; 1.158 x when"),
            std::string::npos)
      << tools::to_table(b);
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(tools::to_json(b))["lesser_floor_s"].get<double>(), 0.0095);
}

}  // namespace
}  // namespace quintet
