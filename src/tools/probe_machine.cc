#include "tools/probe_machine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "observe/metrics.h"

namespace quintet::tools {
namespace {

std::string facts_json(const MachineFacts& f) {
  using observe::json_string;
  return fmt::format(
      "\"processor\": {}, \"cores\": {}, \"matmul\": {}, \"memory_bytes\": {}, \"available_bytes\": {}, "
      "\"disk_free_bytes\": {}, \"mpi\": {}, \"cuda\": {}, \"launcher\": {}, \"world\": {}, "
      "\"load_average\": {}",
      json_string(f.processor), f.cores, json_string(f.matmul_sets.back()), f.memory_bytes, f.available_bytes,
      f.disk_free_bytes, f.mpi, f.cuda, json_string(f.launcher), f.world,
      observe::json_number(f.load_average));
}

std::string probe_json(const Probe& p) {
  using observe::json_number;
  const auto link = [](const LinkRate& l) {
    return fmt::format("{{\"ranks\": {}, \"latency_s\": {}, \"bytes_per_s\": {}}}", l.ranks,
                       json_number(l.latency_seconds), json_number(l.bytes_per_s));
  };
  return fmt::format(
      ", \"probe\": {{\"world\": {}, \"threads\": {}, \"f32_flops\": {}, \"bf16_flops\": {}, \"f64_flops\": "
      "{}, "
      "\"attention_forward_flops\": {}, \"attention_backward_flops\": {}, \"memory_bytes_per_s\": {}, "
      "\"activation_bytes_per_s\": {}, \"launch_s\": {}, "
      "\"inside\": {}, \"across\": {}, \"disk_write_bytes_per_s\": {}, \"disk_read_bytes_per_s\": {}}}",
      p.world, p.threads, json_number(p.f32.median), json_number(p.bf16.median), json_number(p.f64.median),
      json_number(p.attention_forward.median), json_number(p.attention_backward.median),
      json_number(p.memory.median), json_number(p.activation.median), json_number(p.launch_seconds),
      link(p.inside), link(p.across), json_number(p.disk_write_bytes_per_s),
      json_number(p.disk_read_bytes_per_s));
}

std::string gpus_json(const std::vector<GpuFacts>& gpus) {
  using observe::json_string;
  std::string list;
  for (const GpuFacts& g : gpus)
    list += fmt::format(
        "{}{{\"name\": {}, \"memory_bytes\": {}, \"compute_capability\": \"{}.{}\", "
        "\"multiprocessors\": {}}}",
        list.empty() ? "" : ", ", json_string(g.name), g.memory_bytes, g.major, g.minor, g.units);
  return fmt::format(", \"gpus\": [{}]", list);
}

std::string probe_json(const GpuProbe& p) {
  using observe::json_number;
  return fmt::format(
      ", \"gpu_probe\": {{\"world\": {}, \"bf16_flops\": {}, \"tf32_flops\": {}, \"f32_flops\": {}, "
      "\"f64_flops\": {}, \"attention_forward_flops\": {}, \"attention_backward_flops\": {}, "
      "\"memory_bytes_per_s\": {}, \"to_device_bytes_per_s\": {}, \"to_host_bytes_per_s\": {}, "
      "\"launch_s\": {}, \"runtime_bytes\": {}, \"context_bytes\": {}, \"libraries_bytes\": {}, "
      "\"link\": {{\"ranks\": {}, \"latency_s\": {}, \"bytes_per_s\": {}}}}}",
      p.world, json_number(p.bf16.median), json_number(p.tf32.median), json_number(p.f32.median),
      json_number(p.f64.median), json_number(p.attention_forward.median),
      json_number(p.attention_backward.median), json_number(p.memory.median),
      json_number(p.to_device_bytes_per_s), json_number(p.to_host_bytes_per_s), json_number(p.launch_seconds),
      p.runtime_bytes(), p.context_bytes, p.libraries_bytes, p.link.ranks,
      json_number(p.link.latency_seconds), json_number(p.link.bytes_per_s));
}

}  // namespace

void probe_machine(ProbeMachineOptions o, const std::function<void(const ProbedMachine&)>& report) {
  ProbedMachine machine;
  const MachineFacts& facts = machine.facts = inspect_machine();
  const bool many = facts.world > 1;
  if (many && o.ranks != 0)
    base::fail_user("--ranks is for threads of one process; {} started {} processes already", facts.launcher,
                    facts.world);
  machine.gpus = list_gpus(machine.no_gpus);
  const bool on_gpu = !machine.gpus.empty() && !o.cpu;
  const auto share_cores = [&](int64_t ranks) {
    o.probe.ranks_per_host = static_cast<int>(ranks);
    o.probe.threads = static_cast<int>(std::max<int64_t>(1, facts.cores / ranks));
  };
  // Collective; what rank 0 measured is kept.
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
  return fmt::format("{{{}{}{}}}\n", facts_json(m.facts), gpus_json(m.gpus),
                     m.gpu   ? probe_json(*m.gpu)
                     : m.cpu ? probe_json(*m.cpu)
                             : "");
}

}  // namespace quintet::tools
