#include "machine/probe_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "comm/local.h"
#include "comm/mpi.h"

namespace quintet::machine {
namespace {

using Json = nlohmann::ordered_json;

Json link_json(const LinkRate& l) {
  return {{"ranks", l.ranks}, {"latency_s", l.latency_seconds}, {"bytes_per_s", l.bytes_per_s}};
}

Json probe_json(const Probe& p) {
  return {{"world", p.world},
          {"threads", p.threads},
          {"f32_flops", p.f32.median},
          {"bf16_flops", p.bf16.median},
          {"f64_flops", p.f64.median},
          {"attention_forward_flops", p.attention_forward.median},
          {"attention_backward_flops", p.attention_backward.median},
          {"memory_bytes_per_s", p.memory.median},
          {"activation_bytes_per_s", p.activation.median},
          {"launch_s", p.launch_seconds},
          {"inside", link_json(p.inside)},
          {"across", link_json(p.across)},
          {"disk_write_bytes_per_s", p.disk_write_bytes_per_s},
          {"disk_read_bytes_per_s", p.disk_read_bytes_per_s}};
}

Json probe_json(const GpuProbe& p) {
  return {{"world", p.world},
          {"bf16_flops", p.bf16.median},
          {"tf32_flops", p.tf32.median},
          {"f32_flops", p.f32.median},
          {"f64_flops", p.f64.median},
          {"attention_forward_flops", p.attention_forward.median},
          {"attention_backward_flops", p.attention_backward.median},
          {"memory_bytes_per_s", p.memory.median},
          {"to_device_bytes_per_s", p.to_device_bytes_per_s},
          {"to_host_bytes_per_s", p.to_host_bytes_per_s},
          {"launch_s", p.launch_seconds},
          {"runtime_bytes", p.runtime_bytes()},
          {"context_bytes", p.context_bytes},
          {"libraries_bytes", p.libraries_bytes},
          {"link", link_json(p.link)}};
}

}  // namespace

void probe_machine(ProbeMachineOptions o, const std::function<void(const ProbedMachine&)>& report) {
  ProbedMachine machine;
  const MachineFacts& facts = machine.facts = inspect_machine();
  const bool many = facts.world > 1;
  if (many && o.ranks != 0)
    base::fail_user("--ranks applies to threads of one process, but {} started {} processes", facts.launcher,
                    facts.world);
  machine.gpus = list_gpus(machine.no_gpus);
  const bool on_gpu = !machine.gpus.empty() && !o.cpu;
  const auto share_cores = [&](int64_t ranks) {
    o.probe.ranks_per_host = static_cast<int>(ranks);
    o.probe.threads = static_cast<int>(std::max<int64_t>(1, facts.cores / ranks));
  };
  // Collective; the result of rank 0 is kept.
  const auto measure = [&](comm::World& world, int64_t local_rank) {
    const bool first = world.rank().value == 0;
    if (on_gpu) {
      const GpuProbe mine = probe_gpu(world, local_rank, o.probe);
      if (first) machine.gpu = mine;
    } else {
      const Probe mine = probe(world, o.probe);
      if (first) machine.cpu = mine;
    }
  };
  const auto finish = [&] {
    if (machine.cpu) machine.cpu->processes = many;
    if (machine.cpu) machine.cluster = cluster_of(*machine.cpu, facts, o.date);
    if (machine.gpu) machine.cluster = cluster_of(*machine.gpu, facts, o.date);
    report(machine);
  };
  if (many) {
    share_cores(facts.local_world);
    comm::run_mpi_world([&](comm::World& world) {
      if (o.measure) measure(world, facts.local_rank);
      if (world.rank().value == 0) finish();
    });
    return;
  }
  const int ranks = o.ranks != 0 ? o.ranks
                    : on_gpu     ? static_cast<int>(machine.gpus.size())
                                 : std::min(2, facts.cores);
  if (o.measure) {
    share_cores(ranks);
    comm::run_local_world(ranks, [&](comm::World& world) { measure(world, world.rank().value); });
  }
  finish();
}

std::string describe(const ProbedMachine& m) {
  return describe(m.facts) +
         (m.gpus.empty() && m.facts.cuda ? fmt::format("GPUs        none: {}\n", m.no_gpus)
                                         : describe(m.gpus)) +
         (m.gpu   ? "\n" + describe(*m.gpu)
          : m.cpu ? "\n" + describe(*m.cpu)
                  : "");
}

std::string to_json(const ProbedMachine& m) {
  const MachineFacts& f = m.facts;
  Json json = {{"processor", f.processor},
               {"cores", f.cores},
               {"matmul", f.matmul_sets.back()},
               {"memory_bytes", f.memory_bytes},
               {"available_bytes", f.available_bytes},
               {"disk_free_bytes", f.disk_free_bytes},
               {"mpi", f.mpi},
               {"cuda", f.cuda},
               {"launcher", f.launcher},
               {"world", f.world},
               {"load_average", f.load_average},
               {"gpus", Json::array()}};
  for (const GpuFacts& g : m.gpus)
    json["gpus"].push_back({{"name", g.name},
                            {"memory_bytes", g.memory_bytes},
                            {"compute_capability", fmt::format("{}.{}", g.major, g.minor)},
                            {"multiprocessors", g.units}});
  if (m.gpu)
    json["gpu_probe"] = probe_json(*m.gpu);
  else if (m.cpu)
    json["probe"] = probe_json(*m.cpu);
  return base::json_text(json, 1) + "\n";
}

}  // namespace quintet::machine
