// Clusters from GPU measurements; the numbers are invented.
#include <gtest/gtest.h>

#include "hardware/cost.h"
#include "machine/gpu_probe.h"

namespace quintet::machine {
namespace {

using hardware::Arithmetic;

GpuProbe probe_of(const std::string& name) {
  GpuProbe p;
  p.gpu = {.name = name, .memory_bytes = int64_t{140} << 30, .major = 9, .minor = 0, .units = 132};
  p.bf16 = {.best = 760e12, .median = 700e12};
  p.tf32 = {.best = 400e12, .median = 380e12};
  p.f32 = {.best = 50e12, .median = 49e12};
  p.f64 = {.best = 60e12, .median = 58e12};
  p.matmul_size = 8192;
  p.attention_forward = {.best = 560e12, .median = 550e12};
  p.attention_backward = {.best = 420e12, .median = 400e12};
  p.attention_keys = 4096;
  p.memory = {.best = 4.2e12, .median = 4.1e12};
  p.to_device_bytes_per_s = 55e9;
  p.to_host_bytes_per_s = 53e9;
  p.launch_seconds = 1.5e-6;
  p.context_bytes = 600 << 20;
  p.libraries_bytes = 100 << 20;
  return p;
}

// The costs of the cluster reproduce the measured rates.
void expect_as_measured(const hardware::Cluster& c, const GpuProbe& p) {
  const hardware::Accelerator& a = c.accelerator;
  EXPECT_EQ(a.runtime_bytes, 700 << 20);
  EXPECT_EQ(a.memory_bytes, int64_t{140} << 30);
  EXPECT_EQ(c.host.bytes_per_s, 53e9);
  const double flops = 2.0 * 8192 * 8192 * 8192;
  const double matmul =
      hardware::matmul_seconds({.m = 8192, .n = 8192, .k = 8192, .arithmetic = Arithmetic::BF16}, a, {});
  EXPECT_NEAR(matmul, flops / p.bf16.median + p.launch_seconds, 0.01 * matmul);
  for (const bool backward : {false, true}) {
    const hardware::Attention attention{.flops = 1e12, .backward = backward, .keys = 4096};
    const double seconds = hardware::attention_seconds(attention, a, {});
    const double rate = backward ? p.attention_backward.median : p.attention_forward.median;
    EXPECT_NEAR(seconds, 1e12 / rate + p.launch_seconds, 0.01 * seconds);
  }
  EXPECT_NEAR(hardware::memory_seconds(1e9, a, {}), 1e9 / p.memory.median + p.launch_seconds, 1e-6);
  const std::string text = hardware::print_cluster(c);
  EXPECT_EQ(hardware::print_cluster(hardware::parse_cluster_text(text, "probe")), text);
}

TEST(GpuCluster, OfAKnownDeviceKeepsItsPeaks) {
  const GpuProbe p = probe_of("NVIDIA H200");
  const hardware::Accelerator& known = hardware::find_accelerator("h200");
  ASSERT_EQ(find_by_device_name(p.gpu.name), &known);
  const hardware::Cluster c = cluster_of(p, inspect_machine(), "2026-11");
  EXPECT_EQ(c.accelerator.dense_flops, known.dense_flops);
  EXPECT_EQ(c.accelerator.memory_bytes_per_s, known.memory_bytes_per_s);
  expect_as_measured(c, p);
  EXPECT_NE(describe(p).find("% of the dense peak"), std::string::npos);
}

TEST(GpuCluster, OfAnUnknownDeviceHasThePeaksSeen) {
  const GpuProbe p = probe_of("NVIDIA Something");
  ASSERT_EQ(find_by_device_name(p.gpu.name), nullptr);
  const hardware::Cluster c = cluster_of(p, inspect_machine(), "2026-11");
  EXPECT_EQ(c.accelerator.dense(Arithmetic::BF16), 760e12);
  EXPECT_EQ(c.accelerator.memory_bytes_per_s, 4.2e12);
  expect_as_measured(c, p);
}

TEST(GpuCluster, LinksFollowTheRanks) {
  GpuProbe p = probe_of("NVIDIA H200");
  p.world = 4;
  p.ranks_per_host = p.gpus = 4;
  p.link = {.ranks = 4, .latency_seconds = 5e-6, .bytes_per_s = 300e9};
  hardware::Cluster c = cluster_of(p, inspect_machine(), "2026-11");
  EXPECT_EQ(c.world(), 4);
  EXPECT_EQ(c.inner.bytes_per_s, 300e9);
  p.ranks_per_host = 2;
  c = cluster_of(p, inspect_machine(), "2026-11");
  EXPECT_EQ(c.nodes, 2);
  EXPECT_NE(c.inner.bytes_per_s, 300e9);
  EXPECT_EQ(c.outer.name, "probed-network");
}

TEST(GpuCluster, OfUnmeasuredGpus) {
  const GpuFacts h200 = probe_of("NVIDIA H200").gpu, other = probe_of("NVIDIA Something").gpu;
  std::string reason;
  const auto of = [&](const std::vector<GpuFacts>& gpus, int64_t ranks) {
    return cluster_of(gpus, ranks, {.memory_bytes = int64_t{1} << 40}, reason);
  };
  const auto c = of({h200, h200, other}, 2);  // the third is not used
  ASSERT_TRUE(c.has_value());
  EXPECT_EQ(c->world(), 2);
  EXPECT_EQ(c->nodes, 1);
  EXPECT_EQ(c->accelerator.name, hardware::find_accelerator("h200").name);
  EXPECT_EQ(c->accelerator.memory_bytes, h200.memory_bytes);
  EXPECT_EQ(c->host_bytes, int64_t{1} << 40);
  EXPECT_FALSE(of({h200}, 2).has_value());
  EXPECT_EQ(reason, "1 GPU for 2 ranks");
  EXPECT_FALSE(of({other}, 1).has_value());
  EXPECT_EQ(reason, "NVIDIA Something is not in the catalogue");
  EXPECT_FALSE(of({h200, other}, 2).has_value());
  EXPECT_EQ(reason, "different models, NVIDIA H200 and NVIDIA Something");
}

TEST(GpuCluster, ListsDevices) {
  EXPECT_EQ(describe(std::vector<GpuFacts>{}), "");
  const std::string text = describe(std::vector{probe_of("NVIDIA H200").gpu});
  EXPECT_EQ(text.find("GPU 0"), 0u);
  EXPECT_NE(text.find("compute capability 9.0"), std::string::npos);
}

}  // namespace
}  // namespace quintet::machine
