// Cost functions: bounds that hold for every input, orderings required by physics, and the measured H200.
#include "hardware/cost.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace quintet::hardware {
namespace {

const Stack kPlain;

double matmul_bytes(double m, double n, double k) { return 2 * (m * k + k * n + m * n); }

Matmul product(double m, double n, double k, Arithmetic a = Arithmetic::BF16) {
  return {m, n, k, 1, a, matmul_bytes(m, n, k)};
}

double rate(const Matmul& mm, const Accelerator& a) {
  return 2 * mm.m * mm.n * mm.k * mm.groups / matmul_seconds(mm, a, kPlain);
}

TEST(MatmulCost, NeverAboveThePeakOnAnyAccelerator) {
  Stack eager;
  eager.matmul = 5;
  for (const Accelerator& a : accelerators())
    for (const double m : {1., 17., 128., 1000., 4096., 65536.})
      for (const double n : {1., 64., 3000., 16384.})
        for (const double k : {1., 64., 4096., 100000.})
          for (const Arithmetic kind : {Arithmetic::BF16, Arithmetic::FP8, Arithmetic::FP4}) {
            const Matmul mm = product(m, n, k, kind);
            const double peak = a.dense(usable_arithmetic(kind, a));
            EXPECT_LE(rate(mm, a), peak) << a.name;
            EXPECT_LE(2 * m * n * k / matmul_seconds(mm, a, eager), peak) << a.name;
            EXPECT_GE(matmul_seconds(mm, a, kPlain), mm.bytes / a.memory_bytes_per_s);
          }
}

TEST(MatmulCost, LargerTakesLonger) {
  for (const char* name : {"h200-sxm", "a100-80gb", "mi300x", "cpu"}) {
    const Accelerator& a = find_accelerator(name);
    for (double m = 16; m <= 65536; m *= 2)
      for (double k = 16; k <= 16384; k *= 2) {
        const double seconds = matmul_seconds(product(m, 4096, k), a, kPlain);
        EXPECT_GE(matmul_seconds(product(2 * m, 4096, k), a, kPlain), seconds)
            << name << " " << m << " " << k;
        EXPECT_GE(matmul_seconds(product(m, 4096, 2 * k), a, kPlain), seconds)
            << name << " " << m << " " << k;
        EXPECT_GE(matmul_seconds(product(m, 8192, k), a, kPlain), seconds) << name << " " << m << " " << k;
      }
  }
}

TEST(MatmulCost, SmallOnesAreInefficient) {
  const Accelerator& h200 = find_accelerator("h200-sxm");
  EXPECT_LT(rate(product(256, 256, 256), h200), 0.1 * rate(product(8192, 8192, 8192), h200));
  EXPECT_LT(rate(product(16384, 16384, 128), h200), 0.6 * rate(product(16384, 16384, 8192), h200));
  // 133 tiles on 132 units take two waves.
  const double one = matmul_efficiency(product(128 * 132, 256, 8192), h200, kPlain);
  const double two = matmul_efficiency(product(128 * 133, 256, 8192), h200, kPlain);
  EXPECT_LT(two, 0.96 * one);
  // A grouped GEMM fills the chip where a single GEMM does not.
  Matmul expert = product(128, 2048, 2048);
  const double alone = rate(expert, h200);
  expert.groups = 16;
  expert.bytes *= 16;
  EXPECT_GT(rate(expert, h200), 2 * alone);
}

// docs/benchmarks/cuda-kernels.md, on a warm GPU; and 655 TFLOP/s of the first over three seconds.
TEST(MatmulCost, AsMeasuredOnOneH200) {
  const Accelerator& h200 = find_accelerator("h200-sxm");
  const struct {
    double m, n, k, low, high;
  } rows[] = {{16384, 16384, 2048, 655, 662},
              {16384, 2048, 16384, 680, 703},
              {16384, 2048, 8192, 685, 689},
              {8192, 8192, 8192, 657, 675}};
  for (const auto& row : rows) {
    const double got = rate(product(row.m, row.n, row.k), h200) / 1e12;
    EXPECT_GT(got, 0.95 * row.low) << row.m << " " << row.n << " " << row.k;
    EXPECT_LT(got, 1.05 * row.high) << row.m << " " << row.n << " " << row.k;
  }
  // cuBLASLt fp8 on the shapes of 1B to 8B Llamas: 1240 to 1480.
  for (const auto& [m, n, k] : {std::tuple(16384., 16384., 2048.), std::tuple(16384., 14336., 4096.),
                                std::tuple(16384., 4096., 14336.)}) {
    Matmul mm = product(m, n, k, Arithmetic::FP8);
    mm.bytes = m * k + n * k + 2 * m * n;
    const double got = rate(mm, h200) / 1e12;
    EXPECT_GT(got, 0.95 * 1240) << m << " " << n << " " << k;
    EXPECT_LT(got, 1.05 * 1480) << m << " " << n << " " << k;
  }
}

TEST(MatmulCost, ArithmeticThatIsMissingGetsWider) {
  EXPECT_EQ(usable_arithmetic(Arithmetic::FP8, find_accelerator("a100")), Arithmetic::BF16);
  EXPECT_EQ(usable_arithmetic(Arithmetic::BF16, find_accelerator("v100")), Arithmetic::F16);
  EXPECT_EQ(usable_arithmetic(Arithmetic::FP4, find_accelerator("h100")), Arithmetic::FP8);
  EXPECT_THROW(usable_arithmetic(Arithmetic::F64, find_accelerator("tpu-v5p")), base::UserError);
}

// cuDNN on one H200, causal: 433/388 TFLOP/s at head 64, 588/489 at 128.
TEST(AttentionCost, AsMeasuredOnOneH200) {
  const Accelerator& h200 = find_accelerator("h200-sxm");
  const auto tflops = [&](int64_t head, bool backward) {
    const double flops = (backward ? 2.5 : 1) * 2 * 4 * 32 * 4096. * 4096 * static_cast<double>(head);
    return flops / attention_seconds({.flops = flops, .head_dim = head, .backward = backward}, h200, kPlain) /
           1e12;
  };
  EXPECT_NEAR(tflops(64, false), 433, 0.03 * 433);
  EXPECT_NEAR(tflops(64, true), 388, 0.03 * 388);
  EXPECT_NEAR(tflops(128, false), 588, 0.03 * 588);
  EXPECT_NEAR(tflops(128, true), 489, 0.03 * 489);
  const Attention shorter{.flops = 1e12, .keys = 512}, longer{.flops = 1e12, .keys = 65536};
  EXPECT_GT(attention_seconds(shorter, h200, kPlain), 1.2 * attention_seconds(longer, h200, kPlain));
}

// The native kernels without tensor cores, bf16 operands: 7 and 6 TFLOP/s.
TEST(AttentionCost, WithoutTensorCoresAsMeasuredOnOneH200) {
  const Accelerator& h200 = find_accelerator("h200-sxm");
  for (const bool backward : {false, true})
    EXPECT_NEAR(attention_seconds({.flops = 1e13, .backward = backward, .tensor_cores = false}, h200, kPlain),
                10.0 / (backward ? 6 : 7), 0.05);
}

// The grouped GEMMs of four layers of Mixtral, 32,768 rows for 8 experts, took 6.02 ms each in the step.
TEST(MatmulCost, GroupedGemmsAsMeasuredOnOneH200) {
  const Accelerator& h200 = find_accelerator("h200-sxm");
  Matmul mm = product(4096, 14336, 4096);
  mm.groups = 8;
  mm.bytes *= 8;
  EXPECT_NEAR(matmul_seconds(mm, h200, find_stack("quintet")), 6.02e-3, 0.03 * 6.02e-3);
}

// Without a fused kernel every pair of tokens passes through memory, masked or not; never faster than fused.
TEST(AttentionCost, UnfusedWritesEveryPair) {
  const Accelerator& a100 = find_accelerator("a100");
  Stack unfused;
  unfused.unfused_attention = true;
  const double seq = 2048, heads = 96, head = 128;
  for (const bool backward : {false, true}) {
    const double flops = (backward ? 2.5 : 1) * 4 * head * heads * seq * seq / 2;
    const Attention attention{.flops = flops, .backward = backward, .keys = seq};
    const double slow = attention_seconds(attention, a100, unfused);
    EXPECT_GT(slow, attention_seconds(attention, a100, kPlain));
    EXPECT_GT(slow, heads * seq * seq * (backward ? 19 : 13) / a100.memory_bytes_per_s);
    EXPECT_LT(slow, 2 * heads * seq * seq * (backward ? 19 : 13) / a100.memory_bytes_per_s);
  }
}

// Four kernels forward and six backward, whatever they compute; heads of 64 reach half of the rate of a large
// matmul, heads of 192 three quarters.
TEST(AttentionCost, UnfusedLaunchesAndRates) {
  Accelerator a100 = find_accelerator("a100");
  Stack unfused;
  unfused.unfused_attention = true;
  const double launch = a100.efficiency.launch_seconds + unfused.launch_seconds;
  ASSERT_GT(launch, 0);
  EXPECT_NEAR(attention_seconds({.flops = 1}, a100, unfused), 4 * launch, 1e-12);
  EXPECT_NEAR(attention_seconds({.flops = 1, .backward = true}, a100, unfused), 6 * launch, 1e-12);
  a100.memory_bytes_per_s = 1e30;
  const double peak = a100.dense(Arithmetic::BF16) * a100.efficiency.matmul, flops = 1e15;
  for (const auto& [head, share] : {std::pair<int64_t, double>{64, 0.5}, {192, 0.75}})
    EXPECT_NEAR(attention_seconds({.flops = flops, .head_dim = head}, a100, unfused) - 4 * launch,
                flops / (peak * share) / unfused.attention, 1e-6)
        << head;
}

// docs/benchmarks/cuda-kernels.md: microseconds of kernels by the MB that they move.
TEST(MemoryCost, AsMeasuredOnOneH200) {
  const Accelerator& h200 = find_accelerator("h200-sxm");
  Stack by_hand;  // launched one by one, not in a graph
  by_hand.launch_seconds = 2.4e-6;
  for (const auto& [megabytes, us] : {std::pair(134.2, 36.4), std::pair(268.4, 70.0), std::pair(536.9, 133.8),
                                      std::pair(1342.2, 311.2), std::pair(8053.1, 2019.5)})
    EXPECT_NEAR(memory_seconds(megabytes * 1e6, h200, by_hand) * 1e6, us, 0.07 * us) << megabytes;
  EXPECT_GT(memory_seconds(1, h200, kPlain), 0.5e-6);  // a launch is never free
  for (double mb = 1, last = 0; mb < 300; mb += 1) {   // more bytes never take less
    const double now = memory_seconds(mb * 1e6, h200, kPlain);
    EXPECT_GT(now, last) << mb;
    last = now;
  }
  Stack unfused;
  unfused.memory = 2;
  EXPECT_GT(memory_seconds(1e9, h200, unfused), 1.9 * memory_seconds(1e9, h200, kPlain));
}

constexpr CollectiveShape kShapes[] = {CollectiveShape::AllReduce, CollectiveShape::AllGather,
                                       CollectiveShape::ReduceScatter, CollectiveShape::AllToAll,
                                       CollectiveShape::Message};

TEST(CollectiveCostTest, SpreadOfGroups) {
  const Cluster c = parse_cluster("4x8 h100");
  EXPECT_EQ(spread_of(0, 1, 8, c), (Spread{8, 8, 1}));
  EXPECT_EQ(spread_of(3, 8, 4, c), (Spread{4, 1, 4}));
  EXPECT_EQ(spread_of(0, 4, 8, c), (Spread{8, 2, 4}));
  EXPECT_EQ(spread_of(0, 1, 32, c), (Spread{32, 8, 4}));
  EXPECT_EQ(spread_of(0, 1, 32, parse_cluster("72 gb200")), (Spread{32, 32, 1}));
  EXPECT_EQ(spread_of(6, 1, 4, c), (Spread{4, 2, 2}));
}

TEST(CollectiveCostTest, PositiveMonotoneAndNeverFasterThanTheWires) {
  for (const char* phrase :
       {"16x8 h100", "16x8 a100, 4 opa-100", "128 gb200", "16x8 rtx-4090", "16x8 mi300x"}) {
    const Cluster c = parse_cluster(phrase);
    for (const CollectiveShape shape : kShapes)
      for (const Spread& s :
           {Spread{2, 2, 1}, Spread{8, 8, 1}, Spread{16, 1, 16}, Spread{128, 8, 16}, Spread{16, 2, 8}}) {
        double before = 0;
        for (double bytes = 1; bytes < 1e11; bytes *= 4) {
          const double seconds = collective_seconds(shape, bytes, s, c, kPlain);
          EXPECT_GT(seconds, before) << phrase;
          before = seconds;
          // What leaves a domain, over its ports; an all-gather's bytes enter once.
          const double wire =
              s.domains > 1 ? c.outer.bytes_per_s * c.ports_per_device * s.per_domain : c.inner.bytes_per_s;
          if (shape == CollectiveShape::AllGather) {
            EXPECT_GE(seconds, bytes * (s.domains > 1 ? (s.domains - 1.0) / s.domains : 0.5) / wire)
                << phrase;
          }
        }
      }
  }
  for (const CollectiveShape shape : kShapes)
    EXPECT_EQ(collective_seconds(shape, 1e9, Spread{1, 1, 1}, parse_cluster("8 h100"), kPlain), 0);
}

TEST(CollectiveCostTest, LargeOnesFollowTheRingFormula) {
  const Cluster c = parse_cluster("4x8 a100-80gb");
  const double bytes = 8e9, inner = c.inner.effective_bytes_per_s(), outer = c.outer.effective_bytes_per_s();
  EXPECT_NEAR(collective_seconds(CollectiveShape::AllReduce, bytes, {8, 8, 1}, c, kPlain),
              2 * 7. / 8 * bytes / inner, 1e-3);
  EXPECT_NEAR(collective_seconds(CollectiveShape::AllGather, bytes, {8, 8, 1}, c, kPlain),
              7. / 8 * bytes / inner, 1e-3);
  // One member per node: its own port.
  EXPECT_NEAR(collective_seconds(CollectiveShape::ReduceScatter, bytes, {4, 1, 4}, c, kPlain),
              3. / 4 * bytes / outer, 1e-3);
  // Whole nodes: eight ports each, so the slower of eight ports and one device's link.
  EXPECT_NEAR(collective_seconds(CollectiveShape::AllGather, bytes, {32, 8, 4}, c, kPlain),
              31. / 32 * bytes / std::min(8 * outer, inner), 1e-3);
  EXPECT_NEAR(collective_seconds(CollectiveShape::Message, bytes, {2, 1, 2}, c, kPlain), bytes / outer, 1e-3);
}

TEST(CollectiveCostTest, EachAlgorithmIsBestSomewhere) {
  const Cluster c = parse_cluster("64x8 h100");
  const auto algorithm = [&](double bytes, const Spread& s) {
    return collective_cost(CollectiveShape::AllReduce, bytes, s, c, kPlain).algorithm;
  };
  EXPECT_EQ(algorithm(1e9, {8, 8, 1}), CollectiveAlgorithm::InNetwork);
  EXPECT_EQ(algorithm(1e10, {64, 1, 64}), CollectiveAlgorithm::Ring);
  EXPECT_EQ(algorithm(1e4, {64, 1, 64}), CollectiveAlgorithm::Tree);
  // H800's NVLink is little faster than the ports: with eight ports the network is not the only limit.
  EXPECT_NE(algorithm(1e6, {512, 8, 64}), CollectiveAlgorithm::Ring);
}

// Reduce-scatter and all-gather within a node move (p - 1) / p of the message each; the pieces of all members
// together, (d - 1) / d of it twice, pass the node's ports.
TEST(CollectiveCostTest, HierarchicalMovesTheMessageInsideAndAcross) {
  int found = 0;
  for (const char* phrase : {"64x8 h100, 1 ethernet-10", "64x8 a100-80gb, 1 ethernet-25"}) {
    const Cluster c = parse_cluster(phrase);
    for (double bytes = 1e3; bytes < 1e9; bytes *= 2) {
      const CollectiveCost cost = collective_cost(CollectiveShape::AllReduce, bytes, {512, 8, 64}, c, kPlain);
      if (cost.algorithm != CollectiveAlgorithm::Hierarchical) continue;
      ++found;
      const double ports = 8 * c.ports_per_device * c.outer.effective_bytes_per_s();
      const double transfer =
          2 * (7. / 8 * bytes / c.inner.effective_bytes_per_s() + 63. / 64 * bytes / ports);
      EXPECT_NEAR(cost.seconds - cost.latency_seconds, transfer, 1e-9 * transfer) << phrase << " " << bytes;
    }
  }
  EXPECT_GT(found, 0);
}

TEST(CollectiveCostTest, MorePortsAndFasterLinksHelp) {
  const Spread across{16, 1, 16}, whole{128, 8, 16};
  const auto seconds = [&](const char* phrase, const Spread& s, CollectiveShape shape) {
    return collective_seconds(shape, 1e9, s, parse_cluster(phrase), kPlain);
  };
  for (const CollectiveShape shape :
       {CollectiveShape::AllReduce, CollectiveShape::AllGather, CollectiveShape::AllToAll}) {
    EXPECT_LT(seconds("16x8 h100", whole, shape), seconds("16x8 h100, ib-hdr", whole, shape));
    EXPECT_LT(seconds("16x8 h100, ib-hdr", whole, shape), seconds("16x8 h100, 1 ib-hdr", whole, shape));
    EXPECT_LT(seconds("16x8 h100", across, shape), seconds("16x8 h100, ethernet-10", across, shape));
    EXPECT_LT(seconds("128 gb200", {64, 64, 1}, shape), seconds("16x8 b200", {64, 8, 8}, shape));
  }
}

TEST(CopyCost, HostAndDisk) {
  const Cluster c = parse_cluster("8 h200");
  EXPECT_NEAR(55e9 * host_copy_seconds(1e9, c), 1e9, 0.02e9);  // measured 55 GB/s
  EXPECT_GT(disk_seconds(1e9, c), 1e9 / 7e9);
  Cluster none = c;
  none.disk.bytes_per_s = 0;
  EXPECT_THROW(disk_seconds(1e9, none), base::UserError);
}

}  // namespace
}  // namespace quintet::hardware
