// Cost functions on machines in round numbers, where every term has a closed form.
#include <gtest/gtest.h>

#include "hardware/cost.h"
#include "hardware/economy.h"

namespace quintet::hardware {
namespace {

const Stack kPlain;

// Kernels at their peaks, free launches. bf16 at 1 TFLOP/s, fp8 at 2.
Accelerator round_numbers() {
  Accelerator a;
  a.units = 1;
  a.memory_bytes_per_s = 1e12;
  a.dense_flops[static_cast<size_t>(Arithmetic::BF16)] = 1e12;
  a.dense_flops[static_cast<size_t>(Arithmetic::FP8)] = 2e12;
  a.efficiency = {.matmul = 1,
                  .matmul_fp8 = 1,
                  .attention_forward = 0.5,
                  .attention_backward = 0.25,
                  .older_attention = 0.6,
                  .memory = 1,
                  .cache_bytes = 1e6,
                  .cache_speed = 3,
                  .half_flops = 0,
                  .half_k = 64,
                  .launch_seconds = 0};
  return a;
}

// Two domains of four: 100 GB/s and 1 us inside, 10 GB/s per device and 5 us between them.
Cluster two_domains() {
  Cluster c;
  c.accelerator = round_numbers();
  c.nodes = 2;
  c.per_node = c.domain = 4;
  c.inner = {.name = "inner", .title = "inner", .bytes_per_s = 1e11, .latency_s = 1e-6, .efficiency = 1};
  c.outer = {.name = "outer", .title = "outer", .bytes_per_s = 1e10, .latency_s = 5e-6, .efficiency = 1};
  c.host = {.name = "host", .title = "host", .bytes_per_s = 2e10, .latency_s = 3e-6, .efficiency = 1};
  c.ports_per_device = 1;
  return c;
}

// A tile costs half_k in addition to its inner product, in time: twice as much at twice the rate.
TEST(ClosedForm, ShortInnerProducts) {
  const Accelerator a = round_numbers();
  EXPECT_NEAR(matmul_efficiency({256, 256, 256}, a, kPlain), 256. / (256 + 64), 1e-12);
  EXPECT_NEAR(matmul_efficiency({.m = 256, .n = 256, .k = 256, .arithmetic = Arithmetic::FP8}, a, kPlain),
              256. / (256 + 2 * 64), 1e-12);
}

// One tile for four units: its inner product is split in four, and each piece costs half_k twice.
TEST(ClosedForm, SplitInnerProducts) {
  Accelerator a = round_numbers();
  a.units = 4;
  EXPECT_NEAR(matmul_efficiency({128, 256, 4096}, a, kPlain), 1024. / (1024 + 2 * 64), 1e-12);
}

TEST(ClosedForm, AttentionOfNarrowAndOlderKernels) {
  const Accelerator a = round_numbers();
  const Attention wide{.flops = 1e12};
  EXPECT_NEAR(attention_seconds(wide, a, kPlain), 2, 1e-12);
  Attention narrow = wide;
  narrow.arithmetic = Arithmetic::FP8;  // the softmax is not faster
  EXPECT_NEAR(attention_seconds(narrow, a, kPlain), 2 / (2 * 0.7), 1e-12);
  Stack older;
  older.older_attention = true;
  EXPECT_NEAR(attention_seconds(wide, a, older), 2 / 0.6, 1e-12);
}

// 13 bytes per pair forward and 19 backward, where arithmetic takes no time.
TEST(ClosedForm, UnfusedAttention) {
  Accelerator a = round_numbers();
  a.dense_flops[static_cast<size_t>(Arithmetic::BF16)] = 1e30;
  Stack unfused;
  unfused.unfused_attention = true;
  const double pairs = 1e9;
  EXPECT_NEAR(attention_seconds({.flops = 4 * 128 * pairs}, a, unfused), 13e-3, 1e-9);
  EXPECT_NEAR(attention_seconds({.flops = 10 * 128 * pairs, .backward = true}, a, unfused), 19e-3, 1e-9);
}

TEST(ClosedForm, StreamingFromTheCache) {
  const Accelerator a = round_numbers();
  EXPECT_NEAR(memory_seconds(1e6, a, kPlain), 1e-6 / 3, 1e-15);
  EXPECT_NEAR(memory_seconds(1.5e6, a, kPlain), 1.5e-6 / 1.5, 1e-15);  // half of it
  EXPECT_NEAR(memory_seconds(2e6, a, kPlain), 2e-6, 1e-15);
}

// Four members per domain share 40 GB/s: everything leaves a domain once.
TEST(ClosedForm, AllReduceOverTwoDomains) {
  const CollectiveCost c = collective_cost(CollectiveShape::AllReduce, 4e9, {8, 4, 2}, two_domains(), kPlain);
  EXPECT_EQ(c.algorithm, CollectiveAlgorithm::Tree);
  EXPECT_NEAR(c.latency_seconds, 2 * (5e-6 + 2 * 1e-6), 1e-15);
  EXPECT_NEAR(c.seconds - c.latency_seconds, 4e9 / 4e10, 1e-12);
}

// A member sends an eighth of its bytes to each other one: three inside the domain, four outside.
TEST(ClosedForm, AllToAll) {
  const Cluster c = two_domains();
  const auto cost = [&](double bytes, Spread s, const Cluster& on) {
    return collective_cost(CollectiveShape::AllToAll, bytes, s, on, kPlain);
  };
  const CollectiveCost far = cost(8e9, {8, 4, 2}, c);
  EXPECT_NEAR(far.latency_seconds, 5e-6 * (1 + 3. / 8), 1e-15);
  EXPECT_NEAR(far.seconds - far.latency_seconds, 4e9 / 1e10, 1e-12);
  Cluster slow_inside = c;
  slow_inside.inner.bytes_per_s = 1e9;
  EXPECT_NEAR(cost(8e9, {8, 4, 2}, slow_inside).seconds - far.latency_seconds, 3e9 / 1e9, 1e-12);
  const CollectiveCost near = cost(8e9, {4, 4, 1}, c);
  EXPECT_NEAR(near.latency_seconds, 1e-6 * (1 + 2. / 8), 1e-15);
  EXPECT_NEAR(near.seconds - near.latency_seconds, 6e9 / 1e11, 1e-12);
}

TEST(ClosedForm, Messages) {
  const Cluster c = two_domains();
  const auto seconds = [&](Spread s) {
    return collective_seconds(CollectiveShape::Message, 1e9, s, c, kPlain);
  };
  EXPECT_NEAR(seconds({2, 2, 1}), 1e-6 + 1e9 / 1e11, 1e-12);
  EXPECT_NEAR(seconds({2, 1, 2}), 5e-6 + 1e9 / 1e10, 1e-12);
  EXPECT_NEAR(seconds({8, 4, 2}), 5e-6 + 1e9 / 1e10, 1e-12);  // one sender has one port
  EXPECT_NEAR(host_copy_seconds(1e9, c), 3e-6 + 1e9 / 2e10, 1e-12);
}

// Every counted interval of training ends with one checkpoint.
TEST(ClosedForm, TimeInCheckpoints) {
  const Goodput g = goodput({.checkpoint_seconds = 30, .restart_seconds = 300}, 16384, 3000);
  EXPECT_NEAR(g.checkpoint_share / g.share, 30. / 3000, 1e-12);
  EXPECT_NEAR(g.share + g.checkpoint_share + g.lost_share, 1, 1e-12);
}

}  // namespace
}  // namespace quintet::hardware
