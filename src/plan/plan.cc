#include "plan/plan.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "compiler/compile.h"
#include "config/names.h"
#include "models/build.h"
#include "plan/group_warnings.h"
#include "plan/layout_warnings.h"
#include "plan/memory.h"
#include "plan/memory_timeline.h"
#include "plan/sampled_steps.h"
#include "plan/text.h"
#include "plan/time.h"
#include "sim/durations.h"

namespace quintet::plan {
namespace {

void check(const config::Recipe& recipe, const Assumptions& a) {
  const config::Parallel& p = recipe.parallel;
  const int64_t world = a.cluster.world(), inner = p.world() / p.dp_shard;
  if (p.world() != world)
    base::fail_user("the recipe uses {} ranks ({}), but the cluster has {} devices ({} x {} {}){}", p.world(),
                    axes_text(p), world, a.cluster.nodes, a.cluster.per_node, a.cluster.accelerator.name,
                    world % inner == 0
                        ? fmt::format("; parallel.dp_shard = {} would match", world / inner)
                        : fmt::format("; the other axes need a multiple of {} devices", inner));
  if (const int domain = std::max(a.cluster.domain, 1), n = a.cluster.per_node;
      n % domain != 0 && domain % n != 0)
    base::fail_user(
        "a domain of {} devices neither divides nodes of {} devices nor is a multiple of them: use one that "
        "does, such as {}",
        domain, n, n);
  const hardware::Arithmetic arithmetic = a.matmul.value_or(sim::arithmetic_of(recipe.precision.compute));
  if (a.cluster.accelerator.dense(arithmetic) <= 0)
    base::fail_user("{} has no {} arithmetic", a.cluster.accelerator.title, to_string(arithmetic));
  if (recipe.precision.quantises() && !a.cluster.accelerator.is_cpu() &&
      a.cluster.accelerator.dense(hardware::Arithmetic::FP8) <= 0)
    base::fail_user("{} has no fp8 arithmetic, which precision.linear = \"{}\" needs; expected \"compute\"",
                    a.cluster.accelerator.title, config::name_of(recipe.precision.linear));
}

void add_notes(Report& report) {
  const config::Recipe& r = report.recipe;
  const Assumptions& a = report.assumptions;
  if (r.precision.linear == config::LinearKind::Mxfp8 && !a.cluster.accelerator.is_cpu())
    report.notes.push_back("plan-only: precision.linear = \"mxfp8\" runs only on CPUs");
  if (a.matmul && *a.matmul != sim::arithmetic_of(r.precision.compute))
    report.notes.push_back(fmt::format("plan-only: block matmuls in {}; the engine runs them in {}",
                                       to_string(*a.matmul), base::to_string(r.precision.compute)));
  if (r.model.moe.experts > 0 && !r.model.moe.pad && r.parallel.ep * r.parallel.etp > 1)
    report.notes.push_back(
        fmt::format("experts: memory is planned for {}; time and traffic assume the mean{}",
                    r.model.moe.receive_bound > 0
                        ? fmt::format("{:.3g} times the mean rows, and more take further passes",
                                      r.model.moe.receive_bound)
                        : std::string("the most rows that a rank can receive"),
                    a.imbalance == 1 ? "" : fmt::format(" times {:.3g}", a.imbalance)));
  if (a.visible_keys > 0)
    report.notes.push_back(fmt::format(
        "documents: a query sees {:.0f} keys on average; model FLOPs and MFU count sequences of one "
        "document",
        a.visible_keys));
  if (!a.cluster.accelerator.is_nvidia() && !a.cluster.accelerator.is_cpu())
    report.notes.push_back("plan-only: the engine runs on CPUs and NVIDIA GPUs");
  if (!a.disabled_passes.empty())
    report.notes.push_back(fmt::format("passes disabled: {}", to_string(a.disabled_passes)));
  if (!a.stack.is_engine())
    report.notes.push_back(fmt::format("times assume the software stack {}", a.stack.name));
}

compiler::Ranks compile_classes(const config::Recipe& recipe, const Assumptions& assumptions) {
  compiler::CompileOptions options;
  options.evaluate = recipe.eval.every > 0;
  options.model = assumptions.model;
  options.workspace_bytes = assumptions.workspace_bytes;
  options.disabled = assumptions.disabled_passes;
  return compiler::compile_classes_unverified(recipe, options, assumptions.threads);
}

}  // namespace

namespace {

// Of the file system, in a save: a rank looks for a manifest and the folder of checkpoints, makes that of
// the step and finds that it exists. A file that it writes is removed, created, flushed and closed; rank 0
// opens it, reads its header in two parts and closes it.
constexpr int64_t kRankOperations = 4, kFileOperations = 4 + 4;
// Rank 0 lists the folder and flushes both folders. Manifest and pointer are removed, created, flushed,
// closed and renamed, each with a flush of its folder.
constexpr int64_t kCommitOperations = 1 + 2 + 2 * 6;
// In a load, of a rank: it opens and closes the folder of checkpoints, the pointer and its shard, some of
// them several times, 5 in all, and looks up 14 names where the folder has two checkpoints. Rank 0 alone
// reads the manifest.
constexpr int64_t kLoadOperations = 2 * 5 + 14;

// What is known of the two; 0: neither.
double lower_rate(double a, double b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); }

}  // namespace

CheckpointPlan checkpoint_plan(const config::Recipe& recipe, const compiler::Ranks& classes,
                               const FileSystemRates& storage) {
  CheckpointPlan plan{.bytes = program::checkpoint_bytes(classes.states), .host = {}, .host_by_stage = {}};
  const int64_t ranks = recipe.parallel.world();
  const program::SavingKeys keys{.staged = recipe.checkpoint.every.is_on(),
                                 .peers = recipe.checkpoint.peer_every > 0,
                                 .on_gpu = recipe.run.device == config::DeviceKind::Cuda};
  for (size_t place = 0; place < classes.program.size(); ++place) {
    const compiler::RankProgram& rank = classes.program[place];
    const bool has_frozen = std::any_of(rank.groups.begin(), rank.groups.end(),
                                        [](const layout::Group& g) { return !g.trainable; });
    program::SavedByClass saved;
    if (keys.staged || has_frozen)
      saved = program::saved_by_class(rank.program, rank.groups, classes.states, classes.layout,
                                      static_cast<int>(place));
    plan.frozen_files += saved.frozen_files;
    const program::SavingMemory host = program::saving_memory(rank.program, saved, keys);
    if (host.total() > plan.host.total()) plan.host = host;
    plan.host_by_stage.push_back(host);
  }
  plan.bytes_per_rank = (plan.bytes + ranks - 1) / ranks;
  plan.files = ranks + plan.frozen_files + 2;
  plan.metadata_operations =
      ranks * kRankOperations + (ranks + plan.frozen_files) * kFileOperations + kCommitOperations;
  plan.disk_bytes = plan.bytes * (keys.staged ? recipe.checkpoint.keep + 1 : 1);
  plan.load_operations = kLoadOperations * ranks;
  const auto seconds = [&](double rate, int64_t operations) {
    return rate <= 0
               ? 0
               : static_cast<double>(plan.bytes) / rate + static_cast<double>(operations) / storage.metadata;
  };
  plan.write_rate = lower_rate(storage.write, static_cast<double>(recipe.checkpoint.bandwidth.value));
  plan.save_seconds = seconds(plan.write_rate, plan.metadata_operations);
  plan.load_seconds = seconds(storage.read, plan.load_operations);
  return plan;
}

Report make_plan(const config::Recipe& recipe, const Assumptions& assumptions) {
  check(recipe, assumptions);
  compiler::Ranks ranks = compile_classes(recipe, assumptions);

  Report report{.recipe = recipe, .assumptions = assumptions};
  report.parameters = models::parameter_count(ranks.model);
  report.active_parameters = models::active_parameter_count(ranks.model, recipe.model);
  report.state = state_of(ranks.states);
  report.checkpoint = checkpoint_plan(recipe, ranks, assumptions.storage);
  report.memory = memory_of(ranks, machine_of(assumptions), report.checkpoint.host_by_stage);

  std::set<std::string> remarks;
  if (assumptions.remark)
    for (const compiler::RankProgram& rank : ranks.program)
      for (const program::Body& body : rank.program.bodies)
        for (const program::Instr& i : body.instrs)
          if (const std::string remark = assumptions.remark(i); !remark.empty()) remarks.insert(remark);

  std::vector<std::pair<double, Time>> times;
  const std::vector<Sample> list = samples(recipe, instructions(ranks), assumptions.max_instructions);
  for (const Sample& sample : list) {
    if (list.size() > 1) ranks = compile_classes(sample.recipe, assumptions);
    compiler::expand(ranks, assumptions.threads);
    if (assumptions.verify) compiler::verify(ranks, assumptions.threads);
    sim::Simulation simulation = simulate(assumptions, ranks);
    times.emplace_back(sample.weight, time_of(sample.recipe, assumptions, ranks, simulation));
    if (assumptions.timeline && !report.timeline) {
      const size_t most = report.memory.most_loaded;
      report.memory.timeline =
          memory_timeline(world_of(ranks).ranks[most], simulation.ranks[most], simulation.end);
      report.timeline = std::make_shared<Timeline>(
          Timeline{std::move(ranks), std::move(simulation), sample.recipe.batch.accumulation});
    }
  }
  report.time = combine(times);
  report.warnings = layout_warnings(recipe.parallel, assumptions.cluster);
  if (recipe.model.family == config::Family::Bert && !assumptions.cluster.accelerator.is_cpu())
    report.warnings.push_back(
        "model.family = \"bert\" runs only on CPUs so far: no GPU can run this plan yet");
  if (assumptions.verify)
    for (std::string& warning : group_warnings(report)) report.warnings.push_back(std::move(warning));
  report.notes.assign(remarks.begin(), remarks.end());
  add_notes(report);
  return report;
}

void verify_programs(const config::Recipe& recipe, const Assumptions& assumptions) {
  compiler::Ranks ranks = compile_classes(recipe, assumptions);
  const std::vector<Sample> list = samples(recipe, instructions(ranks), assumptions.max_instructions);
  if (list.size() > 1) ranks = compile_classes(list.front().recipe, assumptions);
  compiler::expand(ranks, assumptions.threads);
  compiler::verify(ranks, assumptions.threads);
}

}  // namespace quintet::plan
