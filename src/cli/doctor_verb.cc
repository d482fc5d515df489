#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/output_path.h"
#include "base/provenance.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "config/names.h"
#include "machine/probe_machine.h"
#include "observe/console.h"
#include "tools/doctor.h"
#include "tools/nccl_report.h"

namespace quintet::cli {
namespace {

struct DoctorOptions {
  RecipeOptions recipe;
  std::string cluster;
  std::string nccl;
  bool of_nccl = false, probe = false, json = false, no_disk = false, overwrite = false;
  std::string out, disk = ".";
  int ranks = 0;  // 0: 2, or 1 on a single core
  bool cpu = false;
  double seconds = 0.5;
};

// YYYY-MM, the date format of the catalogue.
std::string this_month() { return base::utc_text().substr(0, 7); }

// Prints the findings; called on rank 0 only.
void report(const DoctorOptions& o, const machine::ProbedMachine& machine) {
  std::string written;
  if (machine.cluster && !o.out.empty()) {
    base::write_file_atomically(o.out, hardware::print_cluster(*machine.cluster));
    written = fmt::format("wrote {}; for recipes of up to {} ranks: quintet plan RECIPE --cluster {}\n",
                          o.out, machine.cluster->world(), o.out);
  } else if (machine.cluster) {
    written = "--out FILE.toml saves this as a cluster for quintet plan\n";
  }
  if (o.json)
    print(machine::to_json(machine));
  else
    print_report(machine::describe(machine) + written);
}

int probe_action(const DoctorOptions& o) {
  if (!o.probe && !o.recipe.dtype.empty())
    base::fail_user("--dtype needs a recipe or --probe: without them nothing is computed");
  if (!o.out.empty() && !o.out.ends_with(".toml"))
    base::fail_user("--out {}: the name of a cluster file must end in .toml", o.out);
  if (!o.out.empty()) base::require_new_file("--out", o.out, o.overwrite);
  if (o.probe && !o.no_disk) base::require_existing_folder("--disk", o.disk);
  machine::ProbeMachineOptions options{
      .measure = o.probe, .cpu = o.cpu, .ranks = o.ranks, .date = this_month()};
  options.probe.seconds = o.seconds;
  options.probe.disk_folder = o.disk;
  if (o.no_disk) options.probe.disk_bytes = 0;
  if (!o.recipe.dtype.empty()) options.probe.compute = *config::value_of<base::DType>(o.recipe.dtype);
  if (!o.json)
    options.probe.on_step = [](std::string_view what) {
      observe::Console::standard_error().print_line(fmt::format("measuring {} ...", what));
    };
  machine::probe_machine(options, [&](const machine::ProbedMachine& machine) { report(o, machine); });
  return kExitGood;
}

int recipe_action(const DoctorOptions& o) {
  if (o.probe || !o.out.empty())
    base::fail_user(
        "--probe does not take a recipe: with a recipe, the machine is probed briefly anyway, or described "
        "by --cluster FILE.toml");
  tools::DoctorOptions options;
  if (o.recipe.steps > 0) options.steps = o.recipe.steps;
  if (!o.cluster.empty()) options.cluster = hardware::parse_cluster(o.cluster);
  options.date = this_month();
  if (!o.json)
    options.log = [](const std::string& line) { observe::Console::standard_error().print_line(line); };
  const auto diagnosis = tools::diagnose([&] { return o.recipe.load(false); }, options);
  if (diagnosis && o.json) print(tools::to_json(*diagnosis));
  if (diagnosis && !o.json) print_report(tools::to_text(*diagnosis));
  return kExitGood;
}

int nccl_action(const DoctorOptions& o) {
  const std::vector<config::NcclVariable> list =
      o.nccl.empty() ? config::nccl_variables()
                     : config::explain_nccl(config::parse_variables(base::read_file(o.nccl), o.nccl));
  o.json ? print(tools::nccl_json(list)) : print_report(tools::nccl_text(list, o.nccl));
  const bool good = std::all_of(list.begin(), list.end(), [](const auto& v) { return v.problem.empty(); });
  return good ? kExitGood : kExitFailure;
}

int doctor_action(const DoctorOptions& o) {
  if (o.of_nccl) {
    if (!o.recipe.path.empty() || o.probe || !o.cluster.empty())
      base::fail_user(
          "--nccl explains variables and measures nothing: leave out the recipe, --probe and --cluster");
    return nccl_action(o);
  }
  if (!o.recipe.path.empty()) return recipe_action(o);
  if (!o.cluster.empty() || o.recipe.steps > 0 || !o.recipe.sets.empty())
    base::fail_user("--cluster, --steps and --set need a recipe: quintet doctor RECIPE");
  return probe_action(o);
}

}  // namespace

Verb add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "doctor", "find the bottleneck of a recipe on this machine; without a recipe, describe the machine");
  auto o = std::make_shared<DoctorOptions>();
  o->recipe.add_to(*command, true, "with a recipe: number of timed steps (5)");
  command->get_option("RECIPE")->required(false)->description(
      "run a few steps of this recipe and compare them with its plan");
  command->add_option("--cluster", o->cluster,
                      "with a recipe: the cluster to plan for, a phrase or a file written by --probe; "
                      "default: this machine, probed briefly");
  command->add_flag("--probe", o->probe, "measure matmuls, memory, links between ranks and the disk");
  command->add_option("--out", o->out, "with --probe: save the measured cluster")->type_name("FILE.toml");
  command->add_flag("--overwrite", o->overwrite, "with --out: replace an existing file");
  command->add_option("--ranks", o->ranks, "with --probe: number of ranks, as threads (2, or 1 on one core)")
      ->type_name("N")
      ->check(integer_in(1, 256));
  command->add_option("--seconds", o->seconds, "with --probe: approximate time per measurement (0.5)")
      ->type_name("S")
      ->check(number_in(0.001, 60));
  command->add_option("--disk", o->disk, "with --probe: a folder on the disk to measure (the current one)")
      ->type_name("DIR");
  command->add_flag("--no-disk", o->no_disk, "with --probe: skip the disk");
  CLI::Option* nccl =
      command
          ->add_option(
              "--nccl", o->nccl,
              "explain and check NCCL's variables, those of this environment or of a file of NAME=value")
          ->type_name("[FILE]")
          ->expected(0, 1);
  command->add_flag("--cpu", o->cpu, "with --probe: measure the CPU even if there are GPUs");
  for (const char* name : {"--out", "--ranks", "--seconds", "--disk", "--no-disk", "--cpu"})
    command->get_option(name)->needs(command->get_option("--probe"));
  command->get_option("--overwrite")->needs(command->get_option("--out"));
  command->get_option("--disk")->excludes(command->get_option("--no-disk"));
  command->add_flag("--json", o->json, "print JSON");
  command->footer(
      "With a recipe: runs a few steps as train would, traces one, shows where their time goes next to the "
      "plan "
      "and names the bottleneck. Writes nothing.\n"
      "Under mpirun or srun, links between processes and hosts are measured. The saved file is an input of "
      "quintet plan --cluster FILE.toml and may be edited.");
  return {command, [o, nccl] {
            o->of_nccl = nccl->count() > 0;
            return doctor_action(*o);
          }};
}

}  // namespace quintet::cli
