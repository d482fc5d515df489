#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "base/error.h"
#include "cli/verbs.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "observe/metrics.h"
#include "tools/probe.h"

namespace quintet::cli {
namespace {

struct DoctorOptions {
  bool probe = false, json = false, no_disk = false;
  std::string out, disk = ".";
  int ranks = 0;  // 0: two, or one on a single core
  double seconds = 0.5;
};

// YYYY-MM, as the catalogue dates its figures.
std::string this_month() { return fmt::format("{:%Y-%m}", fmt::gmtime(std::time(nullptr))); }

std::string facts_json(const tools::MachineFacts& f) {
  using observe::json_string;
  return fmt::format(
      "\"processor\": {}, \"cores\": {}, \"matmul\": {}, \"memory_bytes\": {}, \"available_bytes\": {}, "
      "\"disk_free_bytes\": {}, \"mpi\": {}, \"cuda\": {}, \"launcher\": {}, \"world\": {}",
      json_string(f.processor), f.cores, json_string(f.matmul_sets.back()), f.memory_bytes, f.available_bytes,
      f.disk_free_bytes, f.mpi, f.cuda, json_string(f.launcher), f.world);
}

std::string probe_json(const tools::Probe& p) {
  using observe::json_number;
  const auto link = [](const tools::LinkRate& l) {
    return fmt::format("{{\"ranks\": {}, \"latency_s\": {}, \"bytes_per_s\": {}}}", l.ranks,
                       json_number(l.latency_seconds), json_number(l.bytes_per_s));
  };
  return fmt::format(
      ", \"probe\": {{\"world\": {}, \"threads\": {}, \"f32_flops\": {}, \"bf16_flops\": {}, \"f64_flops\": "
      "{}, "
      "\"attention_forward_flops\": {}, \"attention_backward_flops\": {}, \"memory_bytes_per_s\": {}, "
      "\"launch_s\": {}, "
      "\"inside\": {}, \"across\": {}, \"disk_write_bytes_per_s\": {}, \"disk_read_bytes_per_s\": {}}}",
      p.world, p.threads, json_number(p.f32.median), json_number(p.bf16.median), json_number(p.f64.median),
      json_number(p.attention_forward.median), json_number(p.attention_backward.median),
      json_number(p.memory.median), json_number(p.launch_seconds), link(p.inside), link(p.across),
      json_number(p.disk_write_bytes_per_s), json_number(p.disk_read_bytes_per_s));
}

// Says what was found, on rank 0 alone.
void report(const DoctorOptions& o, const tools::MachineFacts& facts, const tools::Probe* probe) {
  std::string written;
  if (probe != nullptr) {
    const hardware::Cluster cluster = tools::cluster_of(*probe, facts, this_month());
    const std::string text = hardware::print_cluster(cluster);
    if (!o.out.empty()) {
      base::write_file_atomically(o.out, text);
      written = fmt::format("written to {}: quintet plan RECIPE --cluster {}\n", o.out, o.out);
    } else if (!o.json) {
      written = "--out FILE.toml writes this as a cluster for quintet plan\n";
    }
  }
  if (o.json)
    print(fmt::format("{{{}{}}}\n", facts_json(facts), probe != nullptr ? probe_json(*probe) : ""));
  else
    print(tools::describe(facts) + (probe != nullptr ? "\n" + tools::describe(*probe) : "") + written);
}

int doctor_action(const DoctorOptions& o) {
  if (!o.probe && !o.out.empty()) base::fail_user("--out goes with --probe: without it nothing is measured");
  if (!o.out.empty() && !o.out.ends_with(".toml"))
    base::fail_user(
        "--out {}: the name of a cluster's file ends in .toml, so that --cluster knows it for one", o.out);
  const tools::MachineFacts facts = tools::inspect_machine();
  const bool many = facts.world > 1;
  if (many && o.ranks != 0)
    base::fail_user("--ranks is for threads of one process; {} started {} processes already", facts.launcher,
                    facts.world);
  tools::ProbeOptions options;
  options.seconds = o.seconds;
  options.disk_folder = o.disk;
  if (o.no_disk) options.disk_bytes = 0;
  if (!o.json)
    options.on_step = [](std::string_view what) { fmt::print(stderr, "measuring {} ...\n", what); };
  const auto share_cores = [&](int64_t ranks) {
    options.ranks_per_host = static_cast<int>(ranks);
    options.threads = static_cast<int>(std::max<int64_t>(1, facts.cores / ranks));
  };
  if (many) {
    share_cores(facts.local_world);
    comm::run_mpi_world([&](comm::World& world) {
      tools::Probe result;
      if (o.probe) {
        result = tools::probe(world, options);
        result.processes = true;
      }
      if (world.rank().value == 0) report(o, facts, o.probe ? &result : nullptr);
    });
    return kExitGood;
  }
  if (!o.probe) {
    report(o, facts, nullptr);
    return kExitGood;
  }
  const int ranks = o.ranks != 0 ? o.ranks : std::min(2, facts.cores);
  share_cores(ranks);
  tools::Probe result;
  comm::run_local_world(ranks, [&](comm::World& world) {
    const tools::Probe mine = tools::probe(world, options);
    if (world.rank().value == 0) result = mine;
  });
  report(o, facts, &result);
  return kExitGood;
}

}  // namespace

Verb add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", "say what this machine has; with --probe measure it");
  auto o = std::make_shared<DoctorOptions>();
  command->add_flag("--probe", o->probe, "measure matrix products, memory, links between ranks and the disk");
  command->add_option("--out", o->out, "with --probe: write the cluster that was measured")
      ->type_name("FILE.toml");
  command->add_option("--ranks", o->ranks, "with --probe: ranks as threads (2, or 1 on one core)")
      ->type_name("N")
      ->check(CLI::Range(1, 256));
  command->add_option("--seconds", o->seconds, "with --probe: time for each thing measured, about (0.5)")
      ->type_name("S")
      ->check(CLI::Range(0.001, 60.0));
  command->add_option("--disk", o->disk, "with --probe: the folder whose disk is measured (this one)")
      ->type_name("DIR");
  command->add_flag("--no-disk", o->no_disk, "with --probe: leave the disk out");
  command->add_flag("--json", o->json, "as JSON");
  command->footer(
      "Under mpirun or srun the links between processes and hosts are measured. The file is read by\n"
      "quintet plan --cluster FILE.toml; what it says may be edited.");
  return {command, [o] { return doctor_action(*o); }};
}

}  // namespace quintet::cli
