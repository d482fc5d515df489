#include <fmt/format.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "cli/plan_search.h"
#include "cli/verbs.h"
#include "exec/executor.h"
#include "plan/plan.h"
#include "plan/recipe_from_model.h"
#include "plan/text.h"
#include "plan/timeline.h"
#include "search/layout_space.h"
#include "tools/gpu_probe.h"
#include "train/loop.h"

namespace quintet::cli {
namespace {

struct PlanOptions {
  RecipeOptions recipe;
  plan::RecipeRequest request;
  std::string cluster, stack, matmul, trace, html;
  double imbalance = 1, price = -1;
  bool json = false;
  SearchOptions wanted;
};

// This machine's processors, the ranks as devices that share its memory.
hardware::Cluster these_processors(int64_t ranks) {
  hardware::Cluster cluster = hardware::parse_cluster(fmt::format("1x{} cpu", ranks));
  const int64_t bytes = static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
  cluster.accelerator.memory_bytes = bytes / ranks;
  cluster.host_bytes = bytes;
  return cluster;
}

// What the recipe would run on here: this machine's processors, or its GPUs. UserError where a recipe asks
// for GPUs and there are too few of a known kind: how long processors would take is not what was asked.
hardware::Cluster this_machine(const config::Recipe& recipe, std::vector<std::string>& notes) {
  const int64_t ranks = recipe.parallel.world();
  if (recipe.run.device != config::DeviceKind::Cuda) return these_processors(ranks);
  std::string reason;
  const std::vector<tools::GpuFacts> gpus = tools::list_gpus(reason);
  if (!gpus.empty())
    if (const auto cluster = tools::cluster_of(gpus, ranks, tools::inspect_machine(), reason)) {
      notes.push_back(fmt::format("planned for {} of this machine's {} GPUs ({}), by the catalogue's figures",
                                  ranks, gpus.size(), gpus.front().name));
      return *cluster;
    }
  const hardware::Accelerator* known = gpus.empty() ? nullptr : tools::find_by_device_name(gpus.front().name);
  constexpr int64_t kPerNode = 8;
  const int64_t nodes = ranks % kPerNode == 0 ? ranks / kPerNode : 1;
  base::fail_user(
      "run.device is \"cuda\", and it cannot be planned for this machine's GPUs ({}): name a cluster, e.g. "
      "--cluster \"{}x{} {}\"",
      reason, nodes, ranks / nodes, known != nullptr ? known->name : "h200");
}

std::optional<hardware::Arithmetic> arithmetic(const std::string& word) {
  if (word.empty()) return std::nullopt;
  for (int i = 0; i < hardware::kNumArithmetics; ++i)
    if (to_string(static_cast<hardware::Arithmetic>(i)) == word) return static_cast<hardware::Arithmetic>(i);
  base::fail_user("--matmul {}: expected one of f64, f32, tf32, f16, bf16, fp8, fp4", word);
}

int plan_action(const PlanOptions& o) {
  const bool from_file = !o.recipe.path.empty();
  o.wanted.check();
  if (from_file && !o.request.model.empty()) base::fail_user("give a recipe or --model, not both");
  if (!from_file && o.request.model.empty())
    base::fail_user(
        "give a recipe, or --model with --cluster, e.g. quintet plan --model llama3-8b --cluster \"1x8 "
        "h100\"");
  if (!from_file && o.cluster.empty())
    base::fail_user("--model needs --cluster, e.g. --cluster \"2048x8 h100\"");
  if (from_file && (o.request.seq_len > 0 || o.request.global_batch > 0 || o.request.micro_batch > 0))
    base::fail_user(
        "--seq-len, --global-batch and --micro-batch are for --model; use --set data.seq_len=... here");

  plan::Assumptions assumptions;
  plan::FilledRecipe filled_recipe;
  report::Findings findings;
  if (!o.cluster.empty()) assumptions.cluster = hardware::parse_cluster(o.cluster);
  // What a search is to hold of the layout need not be a layout by itself.
  RecipeOptions asked = o.recipe;
  if (o.wanted.search) std::erase_if(asked.sets, search::is_of_layout);
  if (from_file) {
    filled_recipe.recipe = asked.load();
    if (o.cluster.empty()) assumptions.cluster = this_machine(filled_recipe.recipe, findings.notes);
  } else {
    plan::RecipeRequest request = o.request;
    request.sets = asked.sets;
    request.search = o.wanted.search;
    if (!o.recipe.dtype.empty()) request.sets.push_back("precision.compute=" + o.recipe.dtype);
    filled_recipe = plan::recipe_from_model(request, assumptions.cluster);
  }
  if (o.price >= 0) {
    if (o.wanted.tokens.empty())
      base::fail_user("--price is of a run of so many tokens; give --tokens too, e.g. --tokens 15T");
    assumptions.cluster.price_per_hour = o.price;
    assumptions.cluster.price_source = "--price";
  }
  // Ours was measured on GPUs; a CPU's terms are those of its probe.
  const bool is_cpu = assumptions.cluster.accelerator.vendor == "cpu";
  if (!o.stack.empty() || !is_cpu)
    assumptions.stack = hardware::find_stack(o.stack.empty() ? "quintet" : o.stack);
  assumptions.matmul = arithmetic(o.matmul);
  if (o.imbalance != 1 && filled_recipe.recipe.model.moe.experts == 0)
    base::fail_user("--imbalance {} is of experts, and this model has none: leave it out", o.imbalance);
  assumptions.imbalance = o.imbalance;
  if (assumptions.cluster.accelerator.vendor == "nvidia" && assumptions.stack.name == "quintet")
    assumptions.remark = [](const program::Instr& i) { return exec::remark_on(exec::Device::Cuda, i); };
  // Of accelerators that the engine does not run on, those of CUDA's kernels are the nearest truth.
  assumptions.workspace_bytes =
      exec::workspace_of(is_cpu ? exec::Device::Cpu : exec::Device::Cuda,
                         train::kernel_threads(filled_recipe.recipe, filled_recipe.recipe.parallel.world()));

  if (o.wanted.search) {
    std::vector<std::string> held = o.recipe.sets;
    if (o.request.micro_batch > 0) held.push_back(fmt::format("batch.micro={}", o.request.micro_batch));
    const auto found =
        search_layout(o.wanted, {filled_recipe.recipe, held, !from_file}, assumptions, findings);
    if (!o.json) print(text_before(findings, assumptions));
    if (!found) {
      if (o.json) print(report::to_json(nullptr, findings));
      if (!o.json)
        for (const std::string& note : findings.notes) print(fmt::format("note: {}\n", note));
      return kExitFailure;
    }
    filled_recipe.recipe = *found;
  }
  assumptions.timeline = true;
  plan::Report report = plan::make_plan(filled_recipe.recipe, assumptions);
  report.notes.insert(report.notes.begin(), findings.notes.begin(), findings.notes.end());
  // What a search chooses was not filled in.
  const auto chosen = [&](const std::string& key) {
    return o.wanted.search && (key.starts_with("parallel.") || key.starts_with("batch.micro"));
  };
  for (const std::string& filled : filled_recipe.filled)
    if (!chosen(filled)) report.notes.push_back("filled in " + filled);
  add_findings(o.wanted, report, findings);
  if (!o.trace.empty()) plan::write_trace(*report.timeline, o.trace);
  if (!o.html.empty())
    base::write_file_atomically(o.html, report::to_html(report, report::page_parts(report, findings)));
  print(o.json ? report::to_json(&report, findings) : plan::to_text(report) + text_after(findings, report));
  return report.memory.fits() ? kExitGood : kExitFailure;
}

}  // namespace

Verb add_plan(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("plan", "what a recipe needs and how fast it is on a cluster, before anything runs");
  auto o = std::make_shared<PlanOptions>();
  o->recipe.add_to(*command, true, "how many steps (run.steps)");
  command->get_option("RECIPE")->required(false);
  command->add_option(
      "--cluster", o->cluster,
      "the machines: a phrase (\"2x8 rtx-pro-6000, ib-hdr\") or a file of doctor --probe; without "
      "it this machine: its processors, or its GPUs where the recipe runs on them");
  command->add_option("--model", o->request.model, "a preset instead of a recipe")->type_name("PRESET");
  command->add_option("--seq-len", o->request.seq_len, "with --model: tokens of a sequence")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_option("--global-batch", o->request.global_batch, "with --model: sequences of a step")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_option("--micro-batch", o->request.micro_batch, "with --model: sequences of a micro-batch")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_option("--stack", o->stack, "the software whose efficiency to assume")->type_name("NAME");
  command
      ->add_option("--matmul", o->matmul, "arithmetic of matrix products, where it is not the recipe's (fp8)")
      ->type_name("TYPE");
  command->add_option("--imbalance", o->imbalance, "rows of the busiest expert rank over the mean")
      ->type_name("X")
      ->check(CLI::Range(1.0, 1e6));
  command->add_option("--price", o->price, "with --tokens: USD for an hour of one device")
      ->type_name("USD")
      ->check(CLI::Range(0.0, 1e6));
  command->add_option("--trace", o->trace, "write the simulated step, to be opened in Perfetto")
      ->type_name("FILE");
  command->add_option("--html", o->html, "write the report as one page for a browser")->type_name("FILE");
  command->add_flag("--json", o->json, "the report as JSON");
  o->wanted.add_to(*command);
  command->footer("Exit code 1 when it does not fit in memory.");
  return {command, [o] { return plan_action(*o); }};
}

}  // namespace quintet::cli
