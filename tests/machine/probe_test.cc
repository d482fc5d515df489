// The probe measures this machine briefly; the test checks the form of the result, not the speed.
#include "machine/probe.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "comm/local.h"
#include "hardware/cost.h"

namespace quintet::machine {
namespace {

ProbeOptions quick(int ranks) {
  ProbeOptions o;
  o.seconds = 0.002;
  o.ranks_per_host = ranks;
  o.memory_bytes = 1 << 20;
  o.message_bytes = 1 << 16;
  o.disk_folder = testing::TempDir();
  o.disk_bytes = 1 << 20;
  return o;
}

Probe probe_local(int ranks, const ProbeOptions& options) {
  std::vector<Probe> all(static_cast<size_t>(ranks));
  comm::run_local_world(ranks,
                        [&](comm::World& world) { all[world.rank().index()] = probe(world, options); });
  for (const Probe& p : all) {  // identical on every rank
    EXPECT_EQ(p.f32.best, all[0].f32.best);
    EXPECT_EQ(p.memory.median, all[0].memory.median);
    EXPECT_EQ(p.inside.bytes_per_s, all[0].inside.bytes_per_s);
    EXPECT_EQ(p.across.latency_seconds, all[0].across.latency_seconds);
    EXPECT_EQ(p.disk_write_bytes_per_s, all[0].disk_write_bytes_per_s);
  }
  return all[0];
}

void expect_positive(const Probe& p) {
  for (const Rate& r :
       {p.f32, p.bf16, p.f64, p.memory, p.activation, p.attention_forward, p.attention_backward}) {
    EXPECT_GT(r.median, 0);
    EXPECT_GE(r.best, r.median);
    EXPECT_TRUE(std::isfinite(r.best));
  }
  EXPECT_GT(p.launch_seconds, 0);
  EXPECT_GT(p.small_matmul_seconds, 0);
}

TEST(Probe, OneRank) {
  const Probe p = probe_local(1, quick(1));
  expect_positive(p);
  EXPECT_EQ(p.inside.ranks, 1);
  EXPECT_EQ(p.across.ranks, 1);
  EXPECT_GT(p.disk_write_bytes_per_s, 0);
  EXPECT_GT(p.disk_read_bytes_per_s, 0);
}

TEST(Probe, TwoHostsOfTwo) {
  std::vector<std::string> steps;
  ProbeOptions o = quick(2);
  o.on_step = [&](std::string_view what) { steps.emplace_back(what); };
  const Probe p = probe_local(4, o);
  expect_positive(p);
  EXPECT_EQ(p.inside.ranks, 2);
  EXPECT_GT(p.inside.bytes_per_s, 0);
  EXPECT_GT(p.inside.latency_seconds, 0);
  EXPECT_EQ(p.across.ranks, 2);
  EXPECT_GT(p.across.bytes_per_s, 0);
  EXPECT_EQ(steps,
            (std::vector<std::string>{"instructions", "matmuls", "attention", "memory", "links", "disk"}));

  const hardware::Cluster c = cluster_of(p, inspect_machine(), "2026-11");
  EXPECT_EQ(c.nodes, 2);
  EXPECT_EQ(c.per_node, 2);
  EXPECT_EQ(c.outer.name, "probed-network");
  EXPECT_NE(describe(p).find("between hosts"), std::string::npos);
}

TEST(Probe, RefusesUnevenHosts) {
  EXPECT_THROW(comm::run_local_world(3, [&](comm::World& world) { probe(world, quick(2)); }),
               base::UserError);
}

TEST(Probe, NothingIsLeftOnTheDisk) {
  ProbeOptions o = quick(1);
  o.disk_folder = std::filesystem::path(testing::TempDir()) / "quintet-probe-folder";
  std::filesystem::create_directories(o.disk_folder);
  probe_local(1, o);
  EXPECT_TRUE(std::filesystem::is_empty(o.disk_folder));
  std::filesystem::remove(o.disk_folder);
  EXPECT_THROW(probe_local(1, o), base::UserError);  // the folder does not exist
  o.disk_bytes = 0;
  EXPECT_EQ(probe_local(1, o).disk_write_bytes_per_s, 0);
}

// The file contains the cluster, and its costs reproduce the measurements.
TEST(Probe, FileRoundTrip) {
  const Probe p = probe_local(2, quick(2));
  const hardware::Cluster wrote = cluster_of(p, inspect_machine(), "2026-11");
  const std::string text = hardware::print_cluster(wrote);
  const hardware::Cluster read = hardware::parse_cluster_text(text, "probe");
  EXPECT_EQ(hardware::print_cluster(read), text);
  EXPECT_EQ(read.world(), 2);
  EXPECT_EQ(read.accelerator.name, "probed-cpu");
  EXPECT_EQ(read.accelerator.memory_bytes, wrote.accelerator.memory_bytes);
  EXPECT_NEAR(read.accelerator.dense(hardware::Arithmetic::F32), p.f32.best, 1e-9 * p.f32.best);
  EXPECT_EQ(read.inner.name, "probed-inner");
  EXPECT_NEAR(read.inner.bytes_per_s, p.inside.bytes_per_s, 1e-9 * p.inside.bytes_per_s);
  EXPECT_EQ(read.disk.name, "probed-disk");

  const hardware::Stack plain;
  const hardware::Accelerator& a = read.accelerator;
  const hardware::Matmul large{.m = 768, .n = 768, .k = 768, .arithmetic = hardware::Arithmetic::F32};
  const double flops = 2.0 * 768 * 768 * 768;
  const double seconds = hardware::matmul_seconds(large, a, plain);
  EXPECT_GE(seconds, flops / p.f32.best);
  EXPECT_GE(seconds, flops / p.f32.median * 0.999);
  const hardware::Matmul small{.m = 64, .n = 64, .k = 64, .arithmetic = hardware::Arithmetic::F32};
  EXPECT_GE(hardware::matmul_seconds(small, a, plain), p.small_matmul_seconds * 0.999);
}

TEST(Machine, IsDescribed) {
  const MachineFacts facts = inspect_machine();
  EXPECT_GE(facts.cores, 1);
  EXPECT_GT(facts.memory_bytes, 0);
  EXPECT_GT(facts.disk_free_bytes, 0);
  ASSERT_FALSE(facts.matmul_sets.empty());
  const std::string text = describe(facts);
  for (const char* part : {"processor", "core", "memory", "MPI", "CUDA", "launcher"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  EXPECT_NE(text.find(facts.matmul_sets.back()), std::string::npos);
}

}  // namespace
}  // namespace quintet::machine
