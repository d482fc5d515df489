// Measures the machine with the engine's own kernels and communicators, and writes down what a plan needs:
// a cluster of hardware/cluster.h whose accelerators are the ranks that took part.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "comm/communicator.h"
#include "hardware/cluster.h"
#include "tools/machine_facts.h"

namespace quintet::tools {

struct ProbeOptions {
  double seconds = 0.5;  // about, for each thing measured
  int threads = 1;       // of each rank's kernels
  int ranks_per_host = 1;
  // f32, bf16 or f64: the type in which attention and activations are measured.
  base::DType compute = base::DType::F32;
  bool deterministic = false;                 // of a GPU's attention: the same bits on every run
  int64_t memory_bytes = int64_t{128} << 20;  // of the arrays that are streamed through, together
  int64_t message_bytes = int64_t{16} << 20;  // of the large all-reduce
  base::Path disk_folder = ".";
  int64_t disk_bytes = int64_t{128} << 20;  // 0: the disk is left out
  // Told on rank 0 what is measured next.
  std::function<void(std::string_view)> on_step;
};

// A rate of the slowest rank, all ranks at work at once: the best of several runs and the middle one.
struct Rate {
  double best = 0, median = 0;
};

// Between ranks: seconds of a small all-reduce and bytes per second and direction of a large one, as a ring.
struct LinkRate {
  int ranks = 1;  // 1: nothing was measured
  double latency_seconds = 0;
  double bytes_per_s = 0;
};

inline constexpr int64_t kAttentionKeys = 512;

struct Probe {
  int world = 1, ranks_per_host = 1, threads = 1;
  bool processes = false;           // MPI processes; else threads of one process
  Rate f32, bf16, f64;              // FLOP/s of large products
  double small_matmul_seconds = 0;  // f32, 64 x 64 x 64
  base::DType compute = base::DType::F32;
  Rate attention_forward, attention_backward;  // FLOP/s, causal, kAttentionKeys tokens, head size 64
  Rate memory;                                 // bytes read and written per second
  Rate activation;                             // the same of a kernel with an exponential for every element
  double launch_seconds = 0;                   // of an instruction with next to nothing to do
  LinkRate inside, across;                     // ranks of a host; one rank of each host
  double disk_write_bytes_per_s = 0;           // to the device, not only to the system; 0: left out
  double disk_read_bytes_per_s = 0;            // what was just written: the system's cache may help
};

// Collective over the world; every rank returns the same numbers. ranks_per_host divides the world and ranks
// of a host are consecutive. The disk is measured by the first rank of each host and the slowest counts.
Probe probe(comm::World& world, const ProbeOptions& options);

// As a plan sees it: each rank an accelerator with its share of the machine. The dense peak of an arithmetic
// is the best rate seen: efficiencies are shares of that.
hardware::Cluster cluster_of(const Probe& probe, const MachineFacts& facts, const std::string& date);

// A table in plain words.
std::string describe(const Probe& probe);

}  // namespace quintet::tools
