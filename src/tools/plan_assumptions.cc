#include "tools/plan_assumptions.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "exec/executor.h"
#include "machine/gpu_probe.h"
#include "tools/bench_step.h"
#include "train/loop.h"

namespace quintet::tools {
namespace {

// This machine's CPU, with ranks as devices that share its memory.
hardware::Cluster these_processors(int64_t ranks) {
  hardware::Cluster cluster = hardware::parse_cluster(fmt::format("1x{} cpu", ranks));
  const int64_t bytes = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  cluster.accelerator.memory_bytes = bytes / ranks;
  cluster.host_bytes = bytes;
  return cluster;
}

}  // namespace

hardware::Cluster cluster_here(const config::Recipe& recipe, std::vector<std::string>& notes) {
  const int64_t ranks = recipe.parallel.world();
  if (recipe.run.device != config::DeviceKind::Cuda) return these_processors(ranks);
  std::string reason;
  const std::vector<machine::GpuFacts> gpus = machine::list_gpus(reason);
  if (!gpus.empty())
    if (const auto cluster = machine::cluster_of(gpus, ranks, machine::inspect_machine(), reason)) {
      notes.push_back(fmt::format("planned for {} of this machine's {} GPUs ({}), from catalogue data", ranks,
                                  gpus.size(), gpus.front().name));
      return *cluster;
    }
  const hardware::Accelerator* known =
      gpus.empty() ? nullptr : machine::find_by_device_name(gpus.front().name);
  constexpr int64_t kPerNode = 8;
  const int64_t nodes = ranks % kPerNode == 0 ? ranks / kPerNode : 1;
  base::fail_user(
      "run.device is \"cuda\", but this machine's GPUs cannot be used for a plan ({}): name a cluster, e.g. "
      "--cluster \"{}x{} {}\"",
      reason, nodes, ranks / nodes, known != nullptr ? known->name : "h200");
}

void assume_software(plan::Assumptions& assumptions, const std::string& stack, const config::Recipe& recipe) {
  // The engine's stack was measured on GPUs; the terms of a CPU come from its probe.
  const bool is_cpu = assumptions.cluster.accelerator.is_cpu();
  if (!stack.empty() || !is_cpu)
    assumptions.stack = hardware::find_stack(stack.empty() ? hardware::kEngineStack : stack);
  if (assumptions.cluster.accelerator.is_nvidia() && assumptions.stack.is_engine())
    assumptions.remark = [](const program::Instr& i) { return exec::remark_on(exec::Device::Cuda, i); };
  // Other software computes a block in the order of the model, and its terms are fitted to that.
  if (!assumptions.stack.is_engine()) assumptions.disabled_passes.insert(compiler::OptionalPass::Overlap);
  // For accelerators that the engine does not run on, the CUDA kernels are the closest model.
  assumptions.workspace_bytes = exec::workspace_of(is_cpu ? exec::Device::Cpu : exec::Device::Cuda,
                                                   train::kernel_threads(recipe, recipe.parallel.world()));
}

double mean_visible_keys(const std::vector<int64_t>& lengths, const config::Recipe& recipe) {
  constexpr int64_t kMaxSequences = 1024;
  const int64_t seq_len = recipe.data.seq_len, window = recipe.model.sliding_window;
  int64_t all = 0;
  for (const int64_t length : lengths) all += std::min(length, seq_len);
  const int64_t sequences = std::clamp<int64_t>(all / seq_len, 1, kMaxSequences);
  double keys = 0;
  for (const int32_t place : pack_documents(lengths, sequences, seq_len).positions)
    keys += static_cast<double>(window > 0 ? std::min<int64_t>(place + 1, window) : place + 1);
  // In a document of n tokens, causal queries see n (n + 1) / 2 keys, those of an encoder n^2.
  if (recipe.model.family == config::Family::Bert) keys = 2 * keys - static_cast<double>(sequences * seq_len);
  return keys / static_cast<double>(sequences * seq_len);
}

}  // namespace quintet::tools
