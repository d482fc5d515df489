// Seconds of kernels and collectives on given hardware: pure functions of sizes. Nothing here knows programs.
#pragma once

#include <cstdint>

#include "hardware/cluster.h"

namespace quintet::hardware {

struct Matmul {
  double m = 0, n = 0, k = 0;
  double groups = 1;  // products of this size that run as one kernel
  Arithmetic arithmetic = Arithmetic::BF16;
  double bytes = 0;  // operands read and written once
};
double matmul_seconds(const Matmul& matmul, const Accelerator& accelerator, const Stack& stack);

struct Attention {
  double flops = 0;  // masked parts left out
  double bytes = 0;
  int64_t head_dim = 128;
  bool backward = false;
  Arithmetic arithmetic = Arithmetic::BF16;
};
double attention_seconds(const Attention& attention, const Accelerator& accelerator, const Stack& stack);

// Kernels that only move bytes.
double memory_seconds(double bytes, const Accelerator& accelerator, const Stack& stack);

enum class CollectiveShape : uint8_t { AllReduce, AllGather, ReduceScatter, AllToAll, Message };

// Members of a group by where they lie: `domains` domains with `per_domain` members each.
struct Spread {
  int members = 1;
  int per_domain = 1;  // the most members in one domain
  int domains = 1;
};
// `message_bytes` is the whole message over all members (a Message: what is sent). The better of the
// algorithms that libraries have (ring, tree, hierarchical), latency and bandwidth terms included.
double collective_seconds(CollectiveShape shape, double message_bytes, const Spread& spread,
                          const Cluster& cluster, const Stack& stack);

}  // namespace quintet::hardware
