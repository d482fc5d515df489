// Measures the machine with the engine's own kernels and communicators. The result is a cluster
// (hardware/cluster.h) whose accelerators are the ranks that took part.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "comm/communicator.h"
#include "hardware/cluster.h"
#include "machine/facts.h"

namespace quintet::machine {

struct ProbeOptions {
  double seconds = 0.5;  // approximate time per measurement
  int threads = 1;       // kernel threads per rank
  int ranks_per_host = 1;
  // f32, bf16 or f64: the dtype for attention and activations.
  base::DType compute = base::DType::F32;
  bool deterministic = false;                 // GPU attention: bit-equal results in every run
  int64_t memory_bytes = int64_t{128} << 20;  // total size of the streamed arrays
  int64_t message_bytes = int64_t{16} << 20;  // size of the large all-reduce
  base::Path disk_folder = ".";
  int64_t disk_bytes = int64_t{128} << 20;  // 0: skip the disk
  // Called on rank 0 with the name of the next measurement.
  std::function<void(std::string_view)> on_step;
};

// Rate of the slowest rank, with all ranks running at the same time: best and median of several runs.
struct Rate {
  double best = 0, median = 0;
};

// Between ranks: latency of a small all-reduce, and bytes per second and direction of a large one, as a ring.
struct LinkRate {
  int ranks = 1;  // 1: not measured
  double latency_seconds = 0;
  double bytes_per_s = 0;
};

inline constexpr int64_t kAttentionKeys = 512;

struct Probe {
  int world = 1, ranks_per_host = 1, threads = 1;
  bool processes = false;           // MPI processes; otherwise threads of one process
  Rate f32, bf16, f64;              // FLOP/s of large matmuls
  double small_matmul_seconds = 0;  // f32, 64 x 64 x 64
  base::DType compute = base::DType::F32;
  Rate attention_forward, attention_backward;  // FLOP/s, causal, kAttentionKeys tokens, head size 64
  Rate memory;                                 // bytes read and written per second
  Rate activation;                             // the same for a kernel with one exponential per element
  double launch_seconds = 0;                   // of an instruction with almost no work
  LinkRate inside, across;                     // ranks of one host; one rank per host
  double disk_write_bytes_per_s = 0;           // flushed to the device; 0: skipped
  double disk_read_bytes_per_s = 0;            // of what was just written: may come from the page cache
};

// Collective over the world; all ranks return the same values. ranks_per_host must divide the world, and
// ranks of a host must be consecutive. The first rank of each host measures the disk; the slowest counts.
Probe probe(comm::World& world, const ProbeOptions& options);

// The cluster for a plan: each rank is an accelerator with its share of the machine. The dense peak of an
// arithmetic is the best rate measured; efficiencies are relative to it.
hardware::Cluster cluster_of(const Probe& probe, const MachineFacts& facts, const std::string& date);

// A table for the terminal.
std::string describe(const Probe& probe);

}  // namespace quintet::machine
