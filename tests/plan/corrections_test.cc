// Slips that guides make about memory and traffic, with the right values, as the planner has them.
#include <gtest/gtest.h>

#include "config/parse.h"
#include "hardware/cost.h"
#include "hardware/economy.h"
#include "plan/layout_changes.h"
#include "plan/small_models.h"
#include "plan/state_bytes.h"
#include "search/bounds.h"

namespace quintet::plan {
namespace {

using testing::small_cluster;
using testing::small_llama;

constexpr double kGB = 1e9;

Report plan_of(const char* preset, const char* cluster, std::vector<std::string> sets) {
  const config::Recipe r = config::parse(std::string("name = \"x\"\n[model]\npreset = \"") + preset +
                                             "\"\n[data]\nseq_len = 4096\n[batch]\nmicro = "
                                             "1\n[precision]\ncompute = \"bf16\"\n[optimizer]\nlr = 1e-4\n"
                                             "[memory]\nrecompute = \"full\"\n[run]\nsteps = 1\n",
                                         sets);
  Assumptions a;
  a.cluster = hardware::parse_cluster(cluster);
  return make_plan(r, a);
}

int64_t state_bytes(const Report& r) {
  using program::MemoryClass;
  const auto& by = r.memory.ranks[r.memory.most_loaded].by_class;
  return by[static_cast<size_t>(MemoryClass::Parameters)] + by[static_cast<size_t>(MemoryClass::Gradients)] +
         by[static_cast<size_t>(MemoryClass::Optimizer)];
}

// 2 + 4 + 4 + 8 is 18, not 20; 20 has a second gradient.
TEST(Corrections, EighteenBytesNotTwenty) {
  EXPECT_EQ(mixed_f32_gradients().total(), 18);
  EXPECT_EQ(mixed_two_gradients().total(), 20);
  EXPECT_DOUBLE_EQ(7e9 * mixed_f32_gradients().total(), 126 * kGB);
}

// Bytes of a parameter are a function of types.
TEST(Corrections, BytesFollowFromTypes) {
  EXPECT_EQ(mixed_bf16_gradients().total(), 16);
  EXPECT_EQ(pure_f32().total(), 16);
  EXPECT_EQ(pure_bf16().total(), 8);
  EXPECT_EQ(eight_bit_moments().total(), 10);
  // This engine: bf16 weights, gradients summed in f32, f32 master and moments.
  EXPECT_EQ(format_of(config::Precision::of(base::DType::BF16), {}).total(), 18);
  EXPECT_EQ(format_of(config::Precision::of(base::DType::F32), {}).total(), 16);
  // A split master is the weight and two bytes: 12 bytes of state, and 2 of a bf16 gradient.
  config::Precision split = config::Precision::of(base::DType::BF16);
  split.master = config::Master::Split;
  split.gradients = base::DType::BF16;
  EXPECT_EQ(format_of(split, {}).total(), 14);
}

// Master and both moments alone are 12 bytes: 840 GB for 70B; with weights and gradients 1,120.
TEST(Corrections, SeventyBillion) {
  const StateFormat f = mixed_bf16_gradients();
  EXPECT_DOUBLE_EQ(70e9 * (f.master + f.moments), 840 * kGB);
  EXPECT_DOUBLE_EQ(70e9 * f.total(), 1120 * kGB);
  EXPECT_DOUBLE_EQ(70e9 * f.moments, 560 * kGB);
}

// Zero 1 and 2 send what DDP sends; zero 3 half as much again; with accumulation they part.
TEST(Corrections, TrafficOfZero) {
  EXPECT_EQ(traffic(0, 1), 2);
  EXPECT_EQ(traffic(1, 1), 2);
  EXPECT_EQ(traffic(2, 1), 2);
  EXPECT_EQ(traffic(3, 1), 3);
  EXPECT_EQ(traffic(0, 8), 2);
  EXPECT_EQ(traffic(1, 8), 2);
  EXPECT_EQ(traffic(2, 8), 9);
  EXPECT_EQ(traffic(3, 8), 24);
}

// The same, as programs have it: bytes that a rank sends over data ranks, with everything in f32 so that one
// size of the model is one number.
TEST(Corrections, TrafficOfPrograms) {
  const auto sent = [](int zero, int micro_batches) {
    Assumptions a = small_cluster();
    const Report r =
        make_plan(small_llama({"parallel.dp_shard=8", "parallel.zero=" + std::to_string(zero),
                               "precision.compute=f32", "batch.global=" + std::to_string(8 * micro_batches)}),
                  a);
    double bytes = 0;
    for (const LinkBytes& l : r.time.links) bytes += l.bytes;
    return bytes / (static_cast<double>(r.parameters) * 4 * 7 / 8);
  };
  EXPECT_NEAR(sent(1, 1), 2, 0.02);
  EXPECT_NEAR(sent(2, 1), 2, 0.02);
  // The embedding's table is not gathered again for the backward pass, nor is the head's.
  EXPECT_NEAR(sent(3, 1), 3, 0.25);
  EXPECT_NEAR(sent(1, 4), 2, 0.02);
  EXPECT_NEAR(sent(2, 4), 5, 0.05);
  EXPECT_NEAR(sent(3, 4), 12, 1.0);
}

// Savings of ZeRO for 16 bytes: 4x, 8x and linear; 64x is 64 ranks.
TEST(Corrections, SavingsOfZero) {
  const StateFormat f = mixed_bf16_gradients();
  EXPECT_NEAR(16 / sharded_bytes(f, 1, 1e9), 4, 1e-6);
  EXPECT_NEAR(16 / sharded_bytes(f, 2, 1e9), 8, 1e-6);
  EXPECT_DOUBLE_EQ(16 / sharded_bytes(f, 3, 64), 64);
  EXPECT_DOUBLE_EQ(sharded_bytes(f, 1, 8), 4 + 12.0 / 8);
  EXPECT_DOUBLE_EQ(sharded_bytes(f, 2, 8), 2 + 14.0 / 8);
}

// An all-reduce moves 2 (N - 1) / N of the message: 262.5 GB for 70B in bf16 over 16, 10.5 s at 25 GB/s.
TEST(Corrections, AllReduceIsTwoPasses) {
  const double message = 70e9 * 2, sent = 2.0 * 15 / 16 * message;
  EXPECT_DOUBLE_EQ(sent, 262.5 * kGB);
  EXPECT_DOUBLE_EQ(sent / (25 * kGB), 10.5);
  hardware::Cluster c = small_cluster().cluster;
  c.nodes = 16, c.per_node = c.domain = 1;
  c.outer = {.name = "x", .title = "x", .bytes_per_s = 25 * kGB, .latency_s = 0, .efficiency = 1};
  const double seconds = hardware::collective_seconds(hardware::CollectiveShape::AllReduce, message,
                                                      {.members = 16, .per_domain = 1, .domains = 16}, c, {});
  EXPECT_NEAR(seconds, 10.5, 0.6);
}

// Between two nodes hybrid shard all-reduces each rank's eighth: 17.5 GB a GPU in bf16, 140 GB a node.
TEST(Corrections, HybridShardAllReducesShards) {
  const double shard = 70e9 * 2 / 8;
  EXPECT_DOUBLE_EQ(shard, 17.5 * kGB);
  EXPECT_DOUBLE_EQ(shard * 2 * (2 - 1) / 2 * 8, 140 * kGB);
  EXPECT_DOUBLE_EQ(140 * kGB / (25 * kGB), 5.6);
  // The engine reduces in f32: twice that.
  const Report r = plan_of("llama3-70b", "2x8 rtx-pro-6000, ib-hdr",
                           {"parallel.dp_replicate=2", "parallel.dp_shard=8", "parallel.zero=3"});
  double bytes = 0;
  for (const LinkBytes& l : r.time.links)
    if (l.axes == "dp_replicate") bytes += l.bytes;
  EXPECT_NEAR(bytes / (static_cast<double>(r.parameters) * 4 / 8), 1, 0.01);
}

// Hybrid shard on 2 x 8 x 96 GB needs the whole state in a node; full shard over 16 has room.
TEST(Corrections, SeventyBillionHybridShard) {
  const Report hybrid = plan_of("llama3-70b", "2x8 rtx-pro-6000, ib-hdr",
                                {"parallel.dp_replicate=2", "parallel.dp_shard=8", "parallel.zero=3"});
  EXPECT_FALSE(hybrid.memory.fits());
  EXPECT_GT(70e9 * mixed_bf16_gradients().total(), 768 * kGB);
  // 18 bytes here: 70.6B x 18 / 8 = 159 GB a GPU.
  EXPECT_NEAR(static_cast<double>(state_bytes(hybrid)) / kGB, 70.55 * 18 / 8, 20);
  const Report full =
      plan_of("llama3-70b", "2x8 rtx-pro-6000, ib-hdr", {"parallel.dp_shard=16", "parallel.zero=3"});
  EXPECT_NEAR(static_cast<double>(state_bytes(full)) / kGB, 70.55 * 18 / 16, 12);
  EXPECT_LT(70e9 * mixed_bf16_gradients().total() / 16, 96 * kGB);
}

// 405B x 16 B is 6.5 TB: more than four nodes of eight 96 GB or 80 GB GPUs, however it is sharded.
TEST(Corrections, FourNodesDoNotHold405B) {
  EXPECT_GT(405.85e9 * 16, 4 * 8 * 96 * kGB);
  EXPECT_GT(70e9 * 16, 8 * 80 * kGB);
  const hardware::Cluster c = hardware::parse_cluster("4x8 h100");
  EXPECT_EQ(c.per_node, 8);
  EXPECT_EQ(c.world(), 32);
  const Report r = plan_of("llama3-405b", "4x8 h100", {"parallel.dp_shard=32", "parallel.zero=3"});
  EXPECT_FALSE(r.memory.fits());
  EXPECT_GT(needs(r), int64_t{200} << 30);
}

// 405B over tp 8 x pp 8, one replica: 18 B / 64 = 114 GB a GPU. DP 4 with a sharded
// optimizer: 57.
TEST(Corrections, OneReplicaOf405BOn64) {
  const Report r =
      plan_of("llama3-405b", "8x8 h100",
              {"parallel.tp=8", "parallel.sequence_parallel=true", "parallel.pp=8", "batch.global=64"});
  EXPECT_NEAR(static_cast<double>(state_bytes(r)) / kGB, 405.85 * 18 / 64, 12);
  EXPECT_FALSE(r.memory.fits());
  EXPECT_NEAR(405.85 * sharded_bytes(mixed_f32_gradients(), 1, 4) / 64, 57, 0.1);
  // 126 blocks over 8 stages: not even; the cut is balanced by cost.
  EXPECT_NE(126 % 8, 0);
  const search::Bounds bounds(r.assumptions);
  EXPECT_LE(bounds.exact(r.recipe).bytes, needs(r));
}

// Pp 16 with tp 8 is 128 GPUs: 16 nodes of eight.
TEST(Corrections, SixteenStagesOfTpEight) {
  const hardware::Cluster c = hardware::parse_cluster("16x8 h100");
  EXPECT_EQ(c.world(), 16 * 8);
  EXPECT_EQ(c.world() / c.per_node, 16);
}

// 32 GB / 16 B is 2B; 8B needs 128 GB.
TEST(Corrections, SmallCards) {
  EXPECT_DOUBLE_EQ(32 * kGB / mixed_bf16_gradients().total(), 2e9);
  EXPECT_DOUBLE_EQ(8e9 * mixed_bf16_gradients().total(), 128 * kGB);
  EXPECT_LT(8e9 * pure_bf16().total(), 96 * kGB);
  EXPECT_LT(8e9 * eight_bit_moments().total(), 96 * kGB);
}

// Messages of tensor and pipeline axes in a program: two reductions forward and two backward a
// block and micro-batch; a message up and one down for every boundary and micro-batch.
TEST(Corrections, MessagesOfTensorAndPipeline) {
  Assumptions a = small_cluster();
  a.cluster.nodes = 1, a.cluster.per_node = a.cluster.domain = 2;
  const auto bytes_of = [&](const std::vector<std::string>& sets, const std::string& axis) {
    double bytes = 0;
    for (const LinkBytes& l : make_plan(small_llama(sets), a).time.links)
      if (l.axes == axis) bytes += l.bytes;
    return bytes;
  };
  const double rows = 512.0 * 256 * 2;  // bytes of a micro-batch's residual stream in bf16
  // An all-reduce over two ranks sends the message once: 4 a block, 8 blocks, 32 micro-batches; the embedding
  // and the loss come on top.
  const double tp = bytes_of({"parallel.tp=2"}, "tp") / (rows * 32);
  EXPECT_GE(tp, 4 * 8);
  EXPECT_LE(tp, 4 * 8 + 4);
  // Sequence parallel: the same volume in halves.
  const double sp = bytes_of({"parallel.tp=2", "parallel.sequence_parallel=true"}, "tp") / (rows * 32);
  EXPECT_NEAR(sp, tp + 8, 6);  // what is gathered is gathered again for the gradients of weights
  // A boundary: of two stages each sends one message a micro-batch.
  EXPECT_NEAR(bytes_of({"parallel.pp=2"}, "pp") / (rows * 32), 1, 0.05);
}

// Full recompute keeps a block's input only, and computes 4/3.
TEST(Corrections, FullRecompute) {
  const Assumptions a = small_cluster();
  const auto with = [&](const char* kind) {
    return make_plan(
        small_llama({"parallel.dp_shard=8", "parallel.zero=1", std::string("memory.recompute=") + kind}), a);
  };
  const Report none = with("none"), full = with("full");
  EXPECT_NEAR(full.time.hardware_flops / none.time.hardware_flops, 4.0 / 3, 0.08);
  EXPECT_DOUBLE_EQ(full.time.model_flops, none.time.model_flops);
  const search::Bounds bounds(a);
  const double kept = static_cast<double>(bounds.tables(full.recipe)->block(3).kept_bytes);
  EXPECT_NEAR(kept / (512.0 * 256 * 2), 1, 0.05);  // 2 s b h
}

// 70B with AdamW on eight GPUs: 140 GB of state a GPU at 16 bytes.
TEST(Corrections, SeventyBillionOnEight) {
  EXPECT_DOUBLE_EQ(70e9 * 16 / 8, 140 * kGB);
  EXPECT_FALSE(plan_of("llama3-70b", "1x8 h100", {"parallel.dp_shard=8", "parallel.zero=3"}).memory.fits());
}

// Offload from bytes: 4 down and 2 up for a parameter, and the CPU's update at the speed of its memory;
// on disk 24 to 28 bytes.
TEST(Corrections, OffloadFromBytes) {
  const hardware::Cluster c = hardware::parse_cluster("1x8 h100");
  const OffloadCost host = optimizer_offload(1e9, c, 300e9);
  EXPECT_EQ(host.down_bytes, 4);
  EXPECT_EQ(host.up_bytes, 2);
  EXPECT_NEAR(host.seconds, 6e9 / c.host.effective_bytes_per_s() + 30e9 * 8 / 300e9, 1e-6);
  const OffloadCost disk = disk_offload(1e9, c);
  EXPECT_GE(disk.disk_bytes, 24);
  EXPECT_LE(disk.disk_bytes, 28);
}

// 8B on eight GPUs of 32 GB, full shard, micro 1 x 16, 4096 tokens: it fits with 16 to 18 GB of
// state a GPU, and is far above 2,000 tokens/s.
TEST(Corrections, EightBillionOnEight) {
  const Report r =
      plan_of("llama3-8b", "1x8 rtx-5090", {"parallel.dp_shard=8", "parallel.zero=3", "batch.global=128"});
  EXPECT_TRUE(r.memory.fits()) << gib(needs(r));
  EXPECT_NEAR(8.03 * 18 / 8, 18, 0.1);
  EXPECT_GT(r.time.tokens_per_s, 8000);
}

}  // namespace
}  // namespace quintet::plan
