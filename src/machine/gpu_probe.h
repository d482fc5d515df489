// Lists and measures this machine's GPUs with the engine's kernels. Defined in cuda/ for builds with
// QUINTET_CUDA, otherwise in cuda_missing/, which reports none.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "hardware/cluster.h"
#include "machine/probe.h"

namespace quintet::machine {

struct GpuFacts {
  std::string name;
  int64_t memory_bytes = 0;
  int major = 0, minor = 0;  // compute capability
  int units = 0;             // multiprocessors
};

// In the order in which ranks use them. If empty, `reason` explains why.
std::vector<GpuFacts> list_gpus(std::string& reason);

// Rates of the slowest rank, with all ranks running at the same time. GEMM operands are noise: zeros would
// let the chip run faster than its power limit allows on real data.
struct GpuProbe {
  GpuFacts gpu;
  int world = 1, ranks_per_host = 1, gpus = 1;
  Rate bf16, tf32, f32, f64;                   // FLOP/s of large GEMMs, after tuning
  double matmul_size = 0;                      // m = n = k of the fastest bf16 GEMM
  Rate attention_forward, attention_backward;  // FLOP/s of causal bf16 attention; 0: no fast kernel
  double attention_keys = 0;                   // its sequence length; the head size is 128
  Rate memory;                                 // bytes read and written per second
  double to_device_bytes_per_s = 0, to_host_bytes_per_s = 0;  // from and to pinned memory, one way at a time
  double launch_seconds = 0;                                  // from kernel to kernel in a replayed graph
  int64_t context_bytes = 0;    // in use before any measurement: the context and other processes
  int64_t libraries_bytes = 0;  // of cuBLASLt, cuDNN and the kernels, and of NCCL with several ranks
  LinkRate link;                // an all-reduce over the GPUs of all ranks
  int64_t runtime_bytes() const { return context_bytes + libraries_bytes; }
};

// Bytes per second that the first GPU reads from its memory; 0 when there is none.
double gpu_read_bytes_per_s();

// Collective over the world; `local_rank` selects the GPU. UserError when there is none.
GpuProbe probe_gpu(comm::World& world, int64_t local_rank, const ProbeOptions& options);

// The cluster for a plan. Catalogue data of a known device (peaks, links, power) is kept, and efficiencies
// are set from the measurements; for an unknown device, the peaks are the best rates measured.
hardware::Cluster cluster_of(const GpuProbe& probe, const MachineFacts& facts, const std::string& date);

// The same for unmeasured GPUs, one per rank, from catalogue data alone. Empty, with `reason`, when there are
// too few, of different models, or unknown to the catalogue.
std::optional<hardware::Cluster> cluster_of(const std::vector<GpuFacts>& gpus, int64_t ranks,
                                            const MachineFacts& facts, std::string& reason);

// Tables for the terminal.
std::string describe(const std::vector<GpuFacts>& gpus);
std::string describe(const GpuProbe& probe);

// The catalogue accelerator with the longest name or alias contained in the device's name; null when there is
// none.
const hardware::Accelerator* find_by_device_name(const std::string& device);

}  // namespace quintet::machine
