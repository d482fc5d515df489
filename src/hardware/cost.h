// Seconds of kernels and collectives on given hardware: pure functions of sizes, independent of programs.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "hardware/cluster.h"

namespace quintet::hardware {

struct Matmul {
  double m = 0, n = 0, k = 0;
  double groups = 1;  // GEMMs of this size in one kernel
  Arithmetic arithmetic = Arithmetic::BF16;
  double bytes = 0;  // each operand read or written once
};
// The slower of arithmetic and memory, after a launch. Arithmetic: the output is cut into tiles that run in
// waves over the units, with the best of the usual tile shapes and split-k where that fills the chip; each
// tile costs half_k in addition to its k, and filling and draining the chip costs half_flops. Never above the
// peak; monotonic in the size of the matmul. An arithmetic that the accelerator lacks is replaced by the next
// wider one it has.
double matmul_seconds(const Matmul& matmul, const Accelerator& accelerator, const Stack& stack);

// The fraction of the dense peak that this matmul reaches, without the launch.
double matmul_efficiency(const Matmul& matmul, const Accelerator& accelerator, const Stack& stack);

// The arithmetic in which matmuls requested as `wanted` run. Throws UserError if there is none.
Arithmetic usable_arithmetic(Arithmetic wanted, const Accelerator& accelerator);

struct Attention {
  double flops = 0;  // unmasked pairs only
  double bytes = 0;
  int64_t head_dim = 128;
  bool backward = false;
  Arithmetic arithmetic = Arithmetic::BF16;
  double keys = 0;           // causal: diagonal blocks are computed whole; 0: long or not causal
  bool tensor_cores = true;  // false: plain f32 (or f64) arithmetic
  bool documents = false;    // `keys` is the length of packed documents, whose tiles hold parts of several
};
// One kernel or, with Stack::unfused_attention, the matmuls, softmax and dropout one after another.
double attention_seconds(const Attention& attention, const Accelerator& accelerator, const Stack& stack);

// Memory-bound kernels: a launch, then streaming.
double memory_seconds(double bytes, const Accelerator& accelerator, const Stack& stack);

enum class CollectiveShape : uint8_t { AllReduce, AllGather, ReduceScatter, AllToAll, Message };

// Placement of a group: `domains` domains with up to `per_domain` members each.
struct Spread {
  int members = 1;
  int per_domain = 1;  // the most members in one domain
  int domains = 1;
  friend bool operator==(const Spread&, const Spread&) = default;
};
Spread spread_of(std::span<const base::RankId> members, const Cluster& cluster);
// For the ranks first, first + stride, ...
Spread spread_of(int first, int stride, int members, const Cluster& cluster);

enum class CollectiveAlgorithm : uint8_t { None, Ring, Tree, InNetwork, Hierarchical, Pairwise, Point };
std::string_view to_string(CollectiveAlgorithm algorithm);

struct CollectiveCost {
  double seconds = 0;
  double latency_seconds = 0;  // the part independent of the size
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::None;
};

// `message_bytes` is the whole message over all members, as in program/ledger.h: the buffer of an all-reduce,
// the gathered result of an all-gather, one member's input of a reduce-scatter or all-to-all, the bytes sent
// by a Message. Takes the best of the algorithms that libraries offer. Every member of a domain has its own
// share of the ports, so parallel groups do not slow each other down.
CollectiveCost collective_cost(CollectiveShape shape, double message_bytes, const Spread& spread,
                               const Cluster& cluster, const Stack& stack);
double collective_seconds(CollectiveShape shape, double message_bytes, const Spread& spread,
                          const Cluster& cluster, const Stack& stack);

// Between device and host, and between host and disk (the devices of a node share its disk).
double host_copy_seconds(double bytes, const Cluster& cluster);
double disk_seconds(double bytes_of_node, const Cluster& cluster);

}  // namespace quintet::hardware
