#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <optional>

#include "base/error.h"
#include "cli/verbs.h"
#include "comm/local.h"
#include "comm/mpi.h"
#include "observe/console.h"
#include "observe/metrics.h"
#include "tools/doctor.h"
#include "tools/gpu_probe.h"
#include "tools/probe.h"

namespace quintet::cli {
namespace {

struct DoctorOptions {
  RecipeOptions recipe;
  std::string cluster;
  bool probe = false, json = false, no_disk = false;
  std::string out, disk = ".";
  int ranks = 0;  // 0: two, or one on a single core
  bool cpu = false;
  double seconds = 0.5;
};

// YYYY-MM, as the catalogue dates its figures.
std::string this_month() { return fmt::format("{:%Y-%m}", fmt::gmtime(std::time(nullptr))); }

std::string facts_json(const tools::MachineFacts& f) {
  using observe::json_string;
  return fmt::format(
      "\"processor\": {}, \"cores\": {}, \"matmul\": {}, \"memory_bytes\": {}, \"available_bytes\": {}, "
      "\"disk_free_bytes\": {}, \"mpi\": {}, \"cuda\": {}, \"launcher\": {}, \"world\": {}, "
      "\"load_average\": {}",
      json_string(f.processor), f.cores, json_string(f.matmul_sets.back()), f.memory_bytes, f.available_bytes,
      f.disk_free_bytes, f.mpi, f.cuda, json_string(f.launcher), f.world,
      observe::json_number(f.load_average));
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
      "\"activation_bytes_per_s\": {}, \"launch_s\": {}, "
      "\"inside\": {}, \"across\": {}, \"disk_write_bytes_per_s\": {}, \"disk_read_bytes_per_s\": {}}}",
      p.world, p.threads, json_number(p.f32.median), json_number(p.bf16.median), json_number(p.f64.median),
      json_number(p.attention_forward.median), json_number(p.attention_backward.median),
      json_number(p.memory.median), json_number(p.activation.median), json_number(p.launch_seconds),
      link(p.inside), link(p.across), json_number(p.disk_write_bytes_per_s),
      json_number(p.disk_read_bytes_per_s));
}

std::string gpus_json(const std::vector<tools::GpuFacts>& gpus) {
  using observe::json_string;
  std::string list;
  for (const tools::GpuFacts& g : gpus)
    list += fmt::format(
        "{}{{\"name\": {}, \"memory_bytes\": {}, \"compute_capability\": \"{}.{}\", "
        "\"multiprocessors\": {}}}",
        list.empty() ? "" : ", ", json_string(g.name), g.memory_bytes, g.major, g.minor, g.units);
  return fmt::format(", \"gpus\": [{}]", list);
}

std::string probe_json(const tools::GpuProbe& p) {
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

// What was measured on rank 0: the GPUs where there are any, else the processors.
struct Measured {
  std::optional<tools::Probe> cpu;
  std::optional<tools::GpuProbe> gpu;
};

// Says what was found, on rank 0 alone.
void report(const DoctorOptions& o, const tools::MachineFacts& facts,
            const std::vector<tools::GpuFacts>& gpus, const std::string& no_gpus, const Measured& measured) {
  std::string written, table, json;
  std::optional<hardware::Cluster> cluster;
  if (measured.cpu) {
    cluster = tools::cluster_of(*measured.cpu, facts, this_month());
    table = "\n" + tools::describe(*measured.cpu);
    json = probe_json(*measured.cpu);
  }
  if (measured.gpu) {
    cluster = tools::cluster_of(*measured.gpu, facts, this_month());
    table = "\n" + tools::describe(*measured.gpu);
    json = probe_json(*measured.gpu);
  }
  if (cluster && !o.out.empty()) {
    base::write_file_atomically(o.out, hardware::print_cluster(*cluster));
    written = fmt::format("written to {}: quintet plan RECIPE --cluster {}\n", o.out, o.out);
  } else if (cluster) {
    written = "--out FILE.toml writes this as a cluster for quintet plan\n";
  }
  if (o.json)
    print(fmt::format("{{{}{}{}}}\n", facts_json(facts), gpus_json(gpus), json));
  else
    print(tools::describe(facts) +
          (gpus.empty() && facts.cuda ? fmt::format("GPUs        none: {}\n", no_gpus)
                                      : tools::describe(gpus)) +
          table + written);
}

int probe_action(const DoctorOptions& o) {
  if (!o.probe && !o.out.empty()) base::fail_user("--out goes with --probe: without it nothing is measured");
  if (!o.out.empty() && !o.out.ends_with(".toml"))
    base::fail_user(
        "--out {}: the name of a cluster's file ends in .toml, so that --cluster knows it for one", o.out);
  const tools::MachineFacts facts = tools::inspect_machine();
  const bool many = facts.world > 1;
  if (many && o.ranks != 0)
    base::fail_user("--ranks is for threads of one process; {} started {} processes already", facts.launcher,
                    facts.world);
  std::string no_gpus;
  const std::vector<tools::GpuFacts> gpus = tools::list_gpus(no_gpus);
  const bool on_gpu = !gpus.empty() && !o.cpu;
  tools::ProbeOptions options;
  options.seconds = o.seconds;
  options.disk_folder = o.disk;
  if (o.no_disk) options.disk_bytes = 0;
  if (o.recipe.dtype == "bf16") options.compute = base::DType::BF16;
  if (o.recipe.dtype == "f16") options.compute = base::DType::F16;
  if (o.recipe.dtype == "f64") options.compute = base::DType::F64;
  if (!o.json)
    options.on_step = [](std::string_view what) {
      observe::Console::standard_error().print_line(fmt::format("measuring {} ...", what));
    };
  const auto share_cores = [&](int64_t ranks) {
    options.ranks_per_host = static_cast<int>(ranks);
    options.threads = static_cast<int>(std::max<int64_t>(1, facts.cores / ranks));
  };
  const auto measure = [&](comm::World& world, int64_t local_rank) {
    Measured m;
    if (!o.probe) return m;
    if (on_gpu)
      m.gpu = tools::probe_gpu(world, local_rank, options);
    else
      m.cpu = tools::probe(world, options);
    return m;
  };
  if (many) {
    share_cores(facts.local_world);
    comm::run_mpi_world([&](comm::World& world) {
      Measured m = measure(world, facts.local_rank);
      if (m.cpu) m.cpu->processes = true;
      if (world.rank().value == 0) report(o, facts, gpus, no_gpus, m);
    });
    return kExitGood;
  }
  const int ranks = o.ranks != 0 ? o.ranks
                    : on_gpu     ? static_cast<int>(gpus.size())
                                 : std::min(2, facts.cores);
  Measured result;
  if (o.probe) {
    share_cores(ranks);
    comm::run_local_world(ranks, [&](comm::World& world) {
      Measured mine = measure(world, world.rank().value);
      if (world.rank().value == 0) result = std::move(mine);
    });
  }
  report(o, facts, gpus, no_gpus, result);
  return kExitGood;
}

int recipe_action(const DoctorOptions& o) {
  if (o.probe || !o.out.empty())
    base::fail_user(
        "a recipe and --probe are two questions: with a recipe the machine is probed briefly anyway, or "
        "taken "
        "from --cluster FILE.toml");
  tools::DoctorOptions options;
  if (o.recipe.steps > 0) options.steps = o.recipe.steps;
  if (!o.cluster.empty()) options.cluster = hardware::parse_cluster(o.cluster);
  options.date = this_month();
  if (!o.json)
    options.log = [](const std::string& line) { observe::Console::standard_error().print_line(line); };
  const auto diagnosis = tools::diagnose([&] { return o.recipe.load(false); }, options);
  if (diagnosis) print(o.json ? tools::to_json(*diagnosis) : tools::to_text(*diagnosis));
  return kExitGood;
}

int doctor_action(const DoctorOptions& o) {
  if (!o.recipe.path.empty()) return recipe_action(o);
  if (!o.cluster.empty() || o.recipe.steps > 0 || !o.recipe.sets.empty())
    base::fail_user("--cluster, --steps and --set go with a recipe: quintet doctor RECIPE");
  return probe_action(o);
}

}  // namespace

Verb add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "doctor", "say what holds a recipe up here; without one, what this machine has (--probe measures it)");
  auto o = std::make_shared<DoctorOptions>();
  o->recipe.add_to(*command, true, "with a recipe: steps that are timed (5)");
  command->get_option("RECIPE")->required(false)->description(
      "run a few steps of it and compare them with its plan");
  command->remove_option(command->get_option("--run-dir"));  // nothing is written
  command->add_option(
      "--cluster", o->cluster,
      "with a recipe: what to plan on, a phrase or a file of --probe; without it this machine, "
      "measured briefly");
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
  command->add_flag("--cpu", o->cpu, "with --probe: the processors, even where there are GPUs");
  command->add_flag("--json", o->json, "as JSON");
  command->footer(
      "With a recipe: a few steps as train would run them, one traced; where their time goes beside the "
      "plan,\n"
      "and the bottleneck in a sentence. Nothing is written.\n"
      "Under mpirun or srun the links between processes and hosts are measured. The file is read by\n"
      "quintet plan --cluster FILE.toml; what it says may be edited.");
  return {command, [o] { return doctor_action(*o); }};
}

}  // namespace quintet::cli
