// Phrases and files of clusters: their meaning, and the messages for invalid ones.
#include "hardware/cluster.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace quintet::hardware {
namespace {

std::string refusal(const std::string& phrase) {
  try {
    parse_cluster(phrase);
  } catch (const base::UserError& e) {
    return e.what();
  }
  return "accepted";
}

TEST(ClusterPhrase, ReadsEveryForm) {
  const Cluster pro = parse_cluster("2x8 rtx-pro-6000, ib-hdr");
  EXPECT_EQ(pro.accelerator.name, "rtx-pro-6000");
  EXPECT_EQ(pro.nodes, 2);
  EXPECT_EQ(pro.per_node, 8);
  EXPECT_EQ(pro.domain, 8);
  EXPECT_EQ(pro.inner.name, "pcie-5");
  EXPECT_EQ(pro.outer.name, "ib-hdr");

  const Cluster many = parse_cluster("16384 h100");
  EXPECT_EQ(many.world(), 16384);
  EXPECT_EQ(many.nodes, 2048);
  EXPECT_EQ(many.outer.name, "ib-ndr");
  EXPECT_EQ(many, parse_cluster("2048x8 h100"));
  EXPECT_EQ(many, parse_cluster("2048 x 8 H100-SXM"));
  EXPECT_EQ(many, parse_cluster("16,384 h100"));
  EXPECT_EQ(many, parse_cluster("16384xh100"));
  EXPECT_EQ(many, parse_cluster("16384x h100"));

  const Cluster priced = parse_cluster("64x8 h100-sxm, roce-400, price 2.5");
  EXPECT_EQ(priced.world(), 512);
  EXPECT_EQ(priced.outer.name, "roce-400");
  EXPECT_EQ(priced.price_per_hour, 2.5);
  EXPECT_EQ(priced.price_source, "given");
}

TEST(ClusterPhrase, RacksAreOneDomain) {
  const Cluster few = parse_cluster("8 gb200-nvl72");
  EXPECT_EQ(few.world(), 8);
  EXPECT_EQ(few.per_node, 4);
  EXPECT_EQ(few.domain, 8);
  EXPECT_EQ(parse_cluster("256 gb200").domain, 72);
  const Cluster racks = parse_cluster("8x72 gb200-nvl72");
  EXPECT_EQ(racks.world(), 576);
  EXPECT_EQ(racks.domain, 72);
  EXPECT_EQ(parse_cluster("256 gb200, domain 64").domain, 64);
}

TEST(ClusterPhrase, Changes) {
  const Cluster opa = parse_cluster("8x8 a100-80gb, 4 opa-100");
  EXPECT_EQ(opa.outer.name, "opa-100");
  EXPECT_DOUBLE_EQ(opa.ports_per_device, 0.5);
  EXPECT_EQ(opa, parse_cluster("8x8 a100-80gb 4x opa-100"));
  const Cluster all = parse_cluster(
      "4x8 a100, pcie-4, nvme-gen5, host-pcie-3, price $1.5, pue 1.1, carbon 0.05, host 2TB, memory 64GiB");
  EXPECT_EQ(all.inner.name, "pcie-4");
  EXPECT_EQ(all.disk.name, "nvme-gen5");
  EXPECT_EQ(all.host.name, "host-pcie-3");
  EXPECT_EQ(all.price_per_hour, 1.5);
  EXPECT_EQ(all.pue, 1.1);
  EXPECT_EQ(all.carbon_kg_per_kwh, 0.05);
  EXPECT_EQ(all.host_bytes, 2'000'000'000'000);
  EXPECT_EQ(all.accelerator.memory_bytes, int64_t{64} << 30);
  // 800 Gbit/s for 8 devices are 12.5 GB/s each, regardless of the ports.
  const Cluster rate = parse_cluster("2x8 h100, 800Gbps/node");
  EXPECT_DOUBLE_EQ(rate.ports_per_device * rate.outer.bytes_per_s, 12.5e9);
  const Cluster device = parse_cluster("2x8 h100, roce-100, 400Gbps/gpu");
  EXPECT_DOUBLE_EQ(device.ports_per_device * device.outer.bytes_per_s, 50e9);
  EXPECT_EQ(parse_cluster("3 rtx-4090").per_node, 3);
  EXPECT_EQ(parse_cluster("4090").world(), 1);
  EXPECT_EQ(parse_cluster("2 4090").world(), 2);
  EXPECT_EQ(parse_cluster("h100").world(), 1);
}

// What a phrase leaves to the catalogue.
TEST(ClusterPhrase, Defaults) {
  const Cluster h100 = parse_cluster("2x8 h100");
  EXPECT_GT(h100.accelerator.host_bytes_per_device, 0);
  EXPECT_EQ(h100.host_bytes, 8 * h100.accelerator.host_bytes_per_device);  // of a node
  for (const Accelerator& a : accelerators()) {
    const Cluster one = make_cluster(a, 1);
    EXPECT_EQ(one.price_source.empty(), one.price_per_hour == 0) << a.name;
  }
  EXPECT_EQ(parse_cluster("8 h100, domain 1").domain, 1);
  EXPECT_EQ(parse_cluster("8 h100, host 3TiB").host_bytes, int64_t{3} << 40);
  EXPECT_EQ(parse_cluster("4096x4096 h100").world(), 1 << 24);
  // Naming the default network changes nothing; another one has at most a port for each accelerator.
  for (const Accelerator& a : accelerators()) {
    const Cluster plain = make_cluster(a, 1);
    EXPECT_EQ(parse_cluster("1 " + a.name + ", " + plain.outer.name).ports_per_device, plain.ports_per_device)
        << a.name;
    const std::string other = plain.outer.name == "ib-hdr" ? "ib-ndr" : "ib-hdr";
    EXPECT_EQ(parse_cluster("1 " + a.name + ", " + other).ports_per_device,
              std::min(1.0, plain.ports_per_device))
        << a.name;
  }
}

TEST(ClusterPhrase, ErrorsTeach) {
  EXPECT_NE(refusal("").find("the phrase is empty"), std::string::npos);
  EXPECT_NE(refusal("8").find("8"), std::string::npos);
  EXPECT_NE(refusal("2x8").find("accelerator"), std::string::npos);
  EXPECT_NE(refusal("8 h1000").find("did you mean 'h100'"), std::string::npos);
  EXPECT_NE(refusal("2x8 h100, ib-ndx").find("ib-ndr"), std::string::npos);
  EXPECT_NE(refusal("0 h100").find("0 is not a count from 1"), std::string::npos);
  EXPECT_NE(refusal("12 h100").find("use 8 or 16"), std::string::npos);
  EXPECT_NE(refusal("15 h100").find("\"2x8 h100"), std::string::npos) << "the node size, stated";
  EXPECT_NE(refusal("4097x4096 h100").find("exceed the limit of 2^24"), std::string::npos);
  EXPECT_NE(refusal("8 h100, price").find("must be followed by a value"), std::string::npos);
  EXPECT_NE(refusal("8 h100, price cheap").find("expected a number"), std::string::npos);
  EXPECT_NE(refusal("8 h100, pue 0.5").find("at least 1"), std::string::npos);
  EXPECT_NE(refusal("8 h100, host 3").find("2TiB"), std::string::npos);
  EXPECT_NE(refusal("8 h100, 4 nvlink-4").find("between nodes"), std::string::npos);
  EXPECT_NE(refusal("8 h100, 400Gbps").find("Gbps/node"), std::string::npos);
  EXPECT_NE(refusal("8 h100, 4").find("must be followed by a link"), std::string::npos);
  EXPECT_NE(refusal("2x8 h100, ib-hdr, ib-ndr").find("'ib-hdr' and 'ib-ndr' are both links"),
            std::string::npos);
  EXPECT_EQ(refusal("2x8 h100, ib-hdr, nvlink-4"), "accepted");
  EXPECT_NE(refusal("99999999999 h100").find("too large"), std::string::npos);
  EXPECT_NE(refusal("16777216x16777216 h100").find("2^24"), std::string::npos);
  EXPECT_NE(refusal("nowhere/at-all.toml").find("nowhere/at-all.toml"), std::string::npos);
}

TEST(ClusterFile, LeastAndWhole) {
  const Cluster least = parse_cluster_text("[cluster]\naccelerator = \"h100\"\nnodes = 2\n", "least");
  EXPECT_EQ(least, parse_cluster("2x8 h100"));
  const Cluster own = parse_cluster_text(
      "outer = \"roce-200\"\n"
      "[cluster]\naccelerator = \"mine\"\nper_node = 4\n"
      "[accelerator]\nmemory_mib = 1024\nmemory_gb_per_s = 100\ndense_tflops = { bf16 = 10 }\n"
      "[inner]\nname = \"wires\"\ngb_per_s = 2\n[disk]\nname = \"nvme-gen5\"\nefficiency = 0.5\n",
      "own");
  EXPECT_EQ(own.accelerator.name, "mine");
  EXPECT_EQ(own.world(), 4);
  EXPECT_EQ(own.outer.name, "roce-200");
  EXPECT_EQ(own.inner.name, "wires");
  EXPECT_DOUBLE_EQ(own.inner.bytes_per_s, 2e9);
  EXPECT_DOUBLE_EQ(own.disk.bytes_per_s, 14e9);
  EXPECT_DOUBLE_EQ(own.disk.efficiency, 0.5);
}

// Every cluster of the catalogue survives a round trip through a file.
TEST(ClusterFile, RoundTrip) {
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); };
  for (const Accelerator& a : accelerators()) {
    const Cluster wrote = parse_cluster("4 " + a.name + ", 2 roce-200, price 3.25, pue 1.3, carbon 0.1");
    const Cluster read = parse_cluster_text(print_cluster(wrote), a.name);
    EXPECT_EQ(read.accelerator.memory_bytes, wrote.accelerator.memory_bytes);
    EXPECT_EQ(read.accelerator.runtime_bytes, wrote.accelerator.runtime_bytes);
    EXPECT_EQ(read.host_bytes, wrote.host_bytes);
    for (int k = 0; k < kNumArithmetics; ++k)
      EXPECT_TRUE(near(read.accelerator.dense_flops[static_cast<size_t>(k)],
                       wrote.accelerator.dense_flops[static_cast<size_t>(k)]));
    // Every share is there; the terms with units are compared below.
    Efficiency shares = read.accelerator.efficiency;
    shares.half_flops = wrote.accelerator.efficiency.half_flops;
    shares.launch_seconds = wrote.accelerator.efficiency.launch_seconds;
    EXPECT_EQ(shares, wrote.accelerator.efficiency) << a.name;
    EXPECT_TRUE(
        near(read.accelerator.efficiency.launch_seconds, wrote.accelerator.efficiency.launch_seconds));
    EXPECT_EQ(read.accelerator.units, wrote.accelerator.units);
    EXPECT_EQ(read.accelerator.tile, wrote.accelerator.tile);
    EXPECT_TRUE(near(read.accelerator.efficiency.half_flops, wrote.accelerator.efficiency.half_flops));
    for (const auto& [r, w] : {std::pair(&read.inner, &wrote.inner), std::pair(&read.outer, &wrote.outer),
                               std::pair(&read.host, &wrote.host), std::pair(&read.disk, &wrote.disk)}) {
      EXPECT_EQ(r->name, w->name);
      EXPECT_EQ(r->kind, w->kind);
      EXPECT_TRUE(near(r->bytes_per_s, w->bytes_per_s));
      EXPECT_TRUE(near(r->latency_s, w->latency_s));
      EXPECT_EQ(r->efficiency, w->efficiency);
      EXPECT_EQ(r->in_network, w->in_network);
    }
    EXPECT_EQ(read.domain, wrote.domain);
    EXPECT_EQ(read.nodes, wrote.nodes);
    EXPECT_EQ(read.per_node, wrote.per_node);
    EXPECT_EQ(read.ports_per_device, wrote.ports_per_device);
    EXPECT_EQ(read.price_per_hour, 3.25);
    EXPECT_EQ(read.pue, 1.3);
    EXPECT_EQ(read.accelerator.source, wrote.accelerator.source);
    // And the parsed cluster prints as the same file.
    EXPECT_EQ(print_cluster(read), print_cluster(wrote));
  }
}

TEST(ClusterFile, ErrorsTeach) {
  const auto refused = [](const std::string& text) {
    try {
      parse_cluster_text(text, "f.toml");
    } catch (const base::UserError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(refused("").find("no [cluster] table"), std::string::npos);
  EXPECT_NE(refused("[cluster").find("f.toml:1"), std::string::npos);
  EXPECT_NE(refused("[cluster]\naccelerator = \"h100\"\nnoodes = 2").find("did you mean 'nodes'"),
            std::string::npos);
  EXPECT_NE(refused("[cluster]\naccelerator = \"h100\"\nnodes = 1.5").find("integer"), std::string::npos);
  EXPECT_NE(refused("[cluster]\naccelerator = \"h100\"\nnodes = 0").find("at least 1"), std::string::npos);
  EXPECT_NE(refused("[cluster]\naccelerator = 8").find("string in quotes"), std::string::npos);
  EXPECT_NE(refused("[cluster]\nnodes = 1").find("no accelerator"), std::string::npos);
  EXPECT_NE(refused("[cluster]\naccelerator = \"h100\"\n[innr]\ngb_per_s = 3").find("did you mean 'inner'"),
            std::string::npos);
  EXPECT_NE(refused("[cluster]\naccelerator = \"mine\"\n[accelerator]\nmemory_mib = 1").find("above 0"),
            std::string::npos);
  EXPECT_NE(refused("[cluster]\naccelerator = \"h100\"\n[accelerator]\nvendor = \"nvidea\"")
                .find("vendor is 'nvidea'; expected nvidia, amd"),
            std::string::npos);
  EXPECT_NE(refused("inner = \"nvlnk-4\"\n[cluster]\naccelerator = \"h100\"").find("nvlink-4"),
            std::string::npos);
  EXPECT_NE(refused("[cluster]\naccelerator = \"h100\"\n[inner]\nefficiency = 1.5").find("at most 1"),
            std::string::npos);
}

TEST(ClusterFile, ByPath) {
  const base::Path path = std::filesystem::path(testing::TempDir()) / "quintet_cluster_test.toml";
  const Cluster wrote = parse_cluster("2x8 h100");
  base::write_file_atomically(path, print_cluster(wrote));
  EXPECT_EQ(print_cluster(parse_cluster(path.string())), print_cluster(wrote));
  base::remove_file(path);
}

TEST(Cluster, Described) {
  EXPECT_EQ(
      describe(parse_cluster("2x8 h100")),
      "2 nodes of 8 x NVIDIA H100 SXM 80 GB; NVLink 4 through NVSwitch 3, 18 links (H100, H200) joins 8 "
      "neighbours; InfiniBand NDR, 400 Gbit/s between, 8 ports per node");
  EXPECT_EQ(describe(parse_cluster("1 h200")), "1 x NVIDIA H200 SXM 141 GB");
}

}  // namespace
}  // namespace quintet::hardware
