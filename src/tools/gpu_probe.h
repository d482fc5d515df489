// What this machine's GPUs are and how fast the engine's kernels run on one. Defined by cuda/ in builds with
// QUINTET_CUDA, else by cuda_missing/, where there are no GPUs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "hardware/cluster.h"
#include "tools/probe.h"

namespace quintet::tools {

struct GpuFacts {
  std::string name;
  int64_t memory_bytes = 0;
  int major = 0, minor = 0;  // compute capability
  int units = 0;             // multiprocessors
};

// In the order in which ranks use them. Empty: `reason` says why there are none.
std::vector<GpuFacts> list_gpus(std::string& reason);

// Rates are of the slowest rank, all ranks at work at once. Products are of operands with noise: zeros would
// let the chip run faster than its power allows.
struct GpuProbe {
  GpuFacts gpu;
  int world = 1, ranks_per_host = 1, gpus = 1;
  Rate bf16, tf32, f32, f64;                   // FLOP/s of large products, after tuning
  double matmul_size = 0;                      // m = n = k of the bf16 product that was fastest
  Rate attention_forward, attention_backward;  // FLOP/s of causal bf16 attention; 0: none that is fast
  double attention_keys = 0;                   // its sequence's length; the head size is 128
  Rate memory;                                 // bytes read and written per second
  double to_device_bytes_per_s = 0, to_host_bytes_per_s = 0;  // from and to pinned memory, one way at a time
  double launch_seconds = 0;  // from kernel to kernel in a graph that is replayed
  int64_t context_bytes =
      0;  // in use on the device before anything was done: the context, and what others have
  int64_t libraries_bytes = 0;  // that cuBLASLt, cuDNN and the kernels took, and NCCL in a world of several
  LinkRate link;                // an all-reduce of all ranks' GPUs
  int64_t runtime_bytes() const { return context_bytes + libraries_bytes; }
};

// Collective over the world; `local_rank` decides which GPU is this rank's. A UserError where there is none.
GpuProbe probe_gpu(comm::World& world, int64_t local_rank, const ProbeOptions& options);

// As a plan sees it. What the catalogue knows of a device of that name (peaks, links, power) is kept and the
// efficiencies become what was measured of it; of an unknown device the peaks are the best rates seen.
hardware::Cluster cluster_of(const GpuProbe& probe, const MachineFacts& facts, const std::string& date);

// The same of the first cards, one for every rank, that nobody measured, by what the catalogue knows of them.
// None, and `reason` why: there are fewer, they are not of one kind, or the catalogue does not know it.
std::optional<hardware::Cluster> cluster_of(const std::vector<GpuFacts>& gpus, int64_t ranks,
                                            const MachineFacts& facts, std::string& reason);

// Tables in plain words.
std::string describe(const std::vector<GpuFacts>& gpus);
std::string describe(const GpuProbe& probe);

// The accelerator of the catalogue whose name or alias is the longest that the device's name holds; null:
// none.
const hardware::Accelerator* find_by_device_name(const std::string& device);

}  // namespace quintet::tools
