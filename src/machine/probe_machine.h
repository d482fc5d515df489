// `quintet doctor` without a recipe: describes this machine and, on request, measures it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hardware/cluster.h"
#include "machine/facts.h"
#include "machine/gpu_probe.h"
#include "machine/probe.h"

namespace quintet::machine {

struct ProbeMachineOptions {
  bool measure = false;  // false: only describe the machine
  bool cpu = false;      // measure the CPU even if there are GPUs
  int ranks = 0;         // as threads; 0: one per GPU, or 2 on a CPU (1 on a single core)
  std::string date;      // YYYY-MM, the date format of the catalogue
  ProbeOptions probe;    // threads and ranks_per_host are derived
};

struct ProbedMachine {
  MachineFacts facts;
  std::vector<GpuFacts> gpus;
  std::string no_gpus;  // reason, when there are none
  // The measurements: of the GPUs if there are any, otherwise of the CPU.
  std::optional<Probe> cpu;
  std::optional<GpuProbe> gpu;
  std::optional<hardware::Cluster> cluster;  // the measurements as a cluster for a plan
};

// Ranks are the processes of a launcher, or threads of this process. `report` is called on rank 0 only.
void probe_machine(ProbeMachineOptions options, const std::function<void(const ProbedMachine&)>& report);

// Tables for the terminal.
std::string describe(const ProbedMachine& machine);
std::string to_json(const ProbedMachine& machine);

}  // namespace quintet::machine
