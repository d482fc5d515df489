#include "plan/plan.h"

#include <fmt/format.h>

#include <set>

#include "base/error.h"
#include "compiler/compile.h"
#include "config/names.h"
#include "models/build.h"
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

CheckpointPlan checkpoint_plan(const config::Recipe& recipe, const compiler::Ranks& classes) {
  CheckpointPlan plan{.bytes = program::checkpoint_bytes(classes.states), .host = {}};
  const int64_t ranks = recipe.parallel.world();
  const program::SavingKeys keys{.staged = recipe.checkpoint.every.is_on(),
                                 .peers = recipe.checkpoint.peer_every > 0,
                                 .on_gpu = recipe.run.device == config::DeviceKind::Cuda};
  for (const compiler::RankProgram& rank : classes.program) {
    const program::SavingMemory host = program::saving_memory(rank.program, classes.states, keys);
    if (host.total() > plan.host.total()) plan.host = host;
  }
  plan.bytes_per_rank = (plan.bytes + ranks - 1) / ranks;
  plan.files = ranks + 2;
  // A rank makes the folder, and creates, flushes and closes its shard, which rank 0 opens and closes. Then
  // two folders are flushed; manifest and pointer are created, flushed, closed and renamed, each with a flush
  // of its folder.
  plan.metadata_operations = 6 * ranks + 2 + 2 * 5;
  plan.disk_bytes = plan.bytes * (keys.staged ? recipe.checkpoint.keep + 1 : 1);
  if (recipe.checkpoint.bandwidth.value > 0)
    plan.seconds = static_cast<double>(plan.bytes) / static_cast<double>(recipe.checkpoint.bandwidth.value);
  return plan;
}

Report make_plan(const config::Recipe& recipe, const Assumptions& assumptions) {
  check(recipe, assumptions);
  compiler::Ranks ranks = compile_classes(recipe, assumptions);

  Report report{.recipe = recipe, .assumptions = assumptions};
  report.parameters = models::parameter_count(ranks.model);
  report.active_parameters = models::active_parameter_count(ranks.model, recipe.model);
  report.state = state_of(ranks.states);
  report.checkpoint = checkpoint_plan(recipe, ranks);
  report.memory = memory_of(ranks, machine_of(assumptions));

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
