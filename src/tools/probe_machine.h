// What this machine has and, where asked, how fast it is: what `quintet doctor` does without a recipe.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hardware/cluster.h"
#include "tools/gpu_probe.h"
#include "tools/machine_facts.h"
#include "tools/probe.h"

namespace quintet::tools {

struct ProbeMachineOptions {
  bool measure = false;  // else the machine is only looked at
  bool cpu = false;      // the processors, even where there are GPUs
  int ranks = 0;         // as threads; 0: one for every GPU, or two on processors (one on a single core)
  std::string date;      // YYYY-MM, as the catalogue dates its figures
  ProbeOptions probe;    // threads and ranks_per_host are worked out
};

struct ProbedMachine {
  MachineFacts facts;
  std::vector<GpuFacts> gpus;
  std::string no_gpus;  // why there are none
  // What was measured: the GPUs where there are any, else the processors.
  std::optional<Probe> cpu;
  std::optional<GpuProbe> gpu;
  std::optional<hardware::Cluster> cluster;  // as a plan sees what was measured
};

// Ranks are the processes of a launcher, or threads of this process. `report` is called on rank 0 alone.
void probe_machine(ProbeMachineOptions options, const std::function<void(const ProbedMachine&)>& report);

// Tables in plain words.
std::string describe(const ProbedMachine& machine);
std::string to_json(const ProbedMachine& machine);

}  // namespace quintet::tools
