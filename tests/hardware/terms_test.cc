// Physically impossible terms are refused, and sets of terms override the catalogue's.
#include "hardware/terms.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "hardware/cost.h"

namespace quintet::hardware {
namespace {

std::string refusal(const std::string& text) {
  try {
    read_terms(text, "terms.toml");
  } catch (const base::UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST(Terms, OverrideTheCatalogues) {
  const auto sets = read_terms(R"(
[[set]]
name = "a"
only = ["nemo"]
stack.nemo = { matmul = 0.5, launch_us = 7 }
accelerator.b300 = { matmul = 0.25 }
[[set]]
name = "b"
)",
                               "terms.toml");
  ASSERT_EQ(sets.size(), 2u);
  const Stack& nemo = find_stack("nemo");
  const Accelerator& b300 = find_accelerator("b300");
  EXPECT_EQ(sets[0].name, "a");
  EXPECT_EQ(sets[0].of(nemo).matmul, 0.5);
  EXPECT_DOUBLE_EQ(sets[0].of(nemo).launch_seconds, 7e-6);
  EXPECT_EQ(sets[0].of(nemo).memory, nemo.memory);
  EXPECT_EQ(sets[0].of(b300).efficiency.matmul, 0.25);
  EXPECT_EQ(sets[0].of(b300).efficiency.matmul_fp8, b300.efficiency.matmul_fp8);
  EXPECT_EQ(sets[0].of(find_stack("fsdp")), find_stack("fsdp"));
  EXPECT_TRUE(sets[0].concerns("nemo"));
  EXPECT_FALSE(sets[0].concerns("fsdp"));
  EXPECT_EQ(sets[1].of(nemo), nemo);
  EXPECT_TRUE(sets[1].concerns("fsdp"));
}

TEST(Terms, NothingIsFasterThanTheWireOrThePeak) {
  const auto stack = [](const std::string& terms) {
    return refusal("[[set]]\nstack.nemo = { " + terms + " }\n");
  };
  EXPECT_NE(stack("network = 1.2").find("network is 1.2"), std::string::npos) << stack("network = 1.2");
  EXPECT_NE(stack("network = 0").find("above 0 and at most 1"), std::string::npos);
  EXPECT_NE(stack("hidden = 1.5").find("hidden is 1.5"), std::string::npos);
  EXPECT_NE(stack("tensor_hidden = 2").find("tensor_hidden is 2"), std::string::npos);
  EXPECT_NE(stack("memory = 0").find("must be above 0"), std::string::npos);
  EXPECT_NE(stack("reserved = 0.9").find("reserved is 0.9"), std::string::npos);
  EXPECT_EQ(stack("network = 1"), "no error");
  EXPECT_NE(refusal("[[set]]\naccelerator.b300 = { matmul = 1.1 }\n").find("at most 1"), std::string::npos);
}

// For every stack of the catalogue and any group size: no member sends more per second than its links
// carry.
TEST(Terms, NoStackOfTheCatalogueBeatsTheWire) {
  constexpr double kBytes = 1e9;
  for (const char* phrase : {"16x8 h100", "32x4 gb200", "16x8 a100-80gb, 4 opa-100"})
    for (const Stack& stack : stacks()) {
      const Cluster cluster = parse_cluster(phrase);
      for (const int members : {2, 4, 8, 32, 128}) {
        const Spread spread = spread_of(0, 1, members, cluster);
        const double sent = kBytes * (members - 1) / members;
        const double inner = cluster.inner.bytes_per_s;
        const double outer = cluster.outer.bytes_per_s * cluster.ports_per_device * spread.per_domain;
        const double wire = spread.domains > 1 ? std::min(inner, outer) : inner;
        for (const CollectiveShape shape : {CollectiveShape::AllGather, CollectiveShape::ReduceScatter})
          EXPECT_GE(collective_seconds(shape, kBytes, spread, cluster, stack), sent / wire)
              << stack.name << " " << phrase << " " << members;
        // A switch that reduces receives and returns each byte once.
        EXPECT_GE(collective_seconds(CollectiveShape::AllReduce, kBytes, spread, cluster, stack),
                  kBytes / inner)
            << stack.name << " " << phrase << " " << members;
      }
    }
}

TEST(Terms, MistakesAreNamed) {
  EXPECT_NE(refusal("[[set]]\nstack.nemoo = { matmul = 0.5 }\n").find("did you mean 'nemo'"),
            std::string::npos);
  EXPECT_NE(refusal("[[set]]\nstack.nemo = { matmull = 0.5 }\n").find("did you mean 'matmul'"),
            std::string::npos);
  EXPECT_NE(refusal("[[set]]\nstack.nemo = 3\n").find("not a table of terms"), std::string::npos);
  EXPECT_NE(refusal("set = 3\n").find("expected [[set]]"), std::string::npos);
  EXPECT_NE(refusal("[[set]\n").find("line 1"), std::string::npos);
}

}  // namespace
}  // namespace quintet::hardware
