// Seconds of kernels and collectives on given hardware: pure functions of sizes. Nothing here knows programs.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "hardware/cluster.h"

namespace quintet::hardware {

struct Matmul {
  double m = 0, n = 0, k = 0;
  double groups = 1;  // products of this size that run as one kernel
  Arithmetic arithmetic = Arithmetic::BF16;
  double bytes = 0;  // operands read and written once
};
// The slower of arithmetic and memory, after a launch. Arithmetic: the output is cut into tiles that run in
// waves over the units (the best of the usual tile shapes, inner products cut too where that fills the chip);
// each tile costs half_k beside its inner product, and filling and draining the chip half_flops. Never above
// the peak; never less for a larger product. An arithmetic that the accelerator lacks becomes the next wider
// one that it has.
double matmul_seconds(const Matmul& matmul, const Accelerator& accelerator, const Stack& stack);

// The share of the dense peak that this matmul reaches, launch left out.
double matmul_efficiency(const Matmul& matmul, const Accelerator& accelerator, const Stack& stack);

// The arithmetic in which products asked for as `wanted` run, or a UserError where there is none.
Arithmetic usable_arithmetic(Arithmetic wanted, const Accelerator& accelerator);

struct Attention {
  double flops = 0;  // masked parts left out
  double bytes = 0;
  int64_t head_dim = 128;
  bool backward = false;
  Arithmetic arithmetic = Arithmetic::BF16;
  double keys = 0;  // of a causal mask: blocks on the diagonal are computed whole; 0: long or not causal
  bool tensor_cores = true;  // false: in plain f32 (or f64) arithmetic
};
// One kernel, or with Stack::unfused_attention the products, softmax and dropout one after another.
double attention_seconds(const Attention& attention, const Accelerator& accelerator, const Stack& stack);

// Kernels that only move bytes: a launch, then streaming.
double memory_seconds(double bytes, const Accelerator& accelerator, const Stack& stack);

enum class CollectiveShape : uint8_t { AllReduce, AllGather, ReduceScatter, AllToAll, Message };

// Members of a group by where they lie: `domains` domains with `per_domain` members each.
struct Spread {
  int members = 1;
  int per_domain = 1;  // the most members in one domain
  int domains = 1;
  friend bool operator==(const Spread&, const Spread&) = default;
};
Spread spread_of(std::span<const base::RankId> members, const Cluster& cluster);
// Of ranks first, first + stride, ...
Spread spread_of(int first, int stride, int members, const Cluster& cluster);

enum class CollectiveAlgorithm : uint8_t { None, Ring, Tree, InNetwork, Hierarchical, Pairwise, Point };
std::string_view to_string(CollectiveAlgorithm algorithm);

struct CollectiveCost {
  double seconds = 0;
  double latency_seconds = 0;  // the part that does not depend on the size
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::None;
};

// `message_bytes` is the whole message over all members (program/ledger.h: of an all-reduce the buffer, of an
// all-gather what is gathered, of a reduce-scatter or all-to-all one member's input; a Message: what is
// sent). The best of the algorithms that libraries have. Every member of a domain sends through its own share
// of the ports, so groups that lie side by side do not slow each other.
CollectiveCost collective_cost(CollectiveShape shape, double message_bytes, const Spread& spread,
                               const Cluster& cluster, const Stack& stack);
double collective_seconds(CollectiveShape shape, double message_bytes, const Spread& spread,
                          const Cluster& cluster, const Stack& stack);

// Between device and host, and between host and disk (a node's disk shared by its devices).
double host_copy_seconds(double bytes, const Cluster& cluster);
double disk_seconds(double bytes_of_node, const Cluster& cluster);

}  // namespace quintet::hardware
