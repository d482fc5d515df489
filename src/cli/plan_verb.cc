#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/output_path.h"
#include "cli/number.h"
#include "cli/provenance.h"
#include "cli/search_options.h"
#include "cli/verbs.h"
#include "observe/console.h"
#include "plan/plan.h"
#include "plan/recipe_from_model.h"
#include "plan/text.h"
#include "plan/timeline.h"
#include "search/layout_space.h"
#include "tools/bench_step.h"
#include "tools/plan_assumptions.h"

namespace quintet::cli {
namespace {

struct PlanOptions {
  RecipeOptions recipe;
  plan::RecipeRequest request;
  std::string cluster, stack, matmul, documents, trace, html;
  double imbalance = 1, price = -1;
  int64_t write_rate = 0, read_rate = 0;
  plan::FileSystemRates storage;
  bool json = false;
  SearchOptions wanted;
};

std::optional<hardware::Arithmetic> arithmetic(const std::string& word) {
  if (word.empty()) return std::nullopt;
  for (int i = 0; i < hardware::kNumArithmetics; ++i)
    if (to_string(static_cast<hardware::Arithmetic>(i)) == word) return static_cast<hardware::Arithmetic>(i);
  base::fail_user("--matmul {}: must be one of f64, f32, tf32, f16, bf16, fp8, fp4", word);
}

// A number of tokens, or a file of them.
std::vector<int64_t> document_lengths(const std::string& given) {
  const bool number = given[0] != 'e' && given.find_first_not_of("+-.0123456789e") == std::string::npos;
  return tools::parse_document_lengths(number ? given : base::read_file(given),
                                       number ? "--documents" : given);
}

// A recipe of fewer ranks than the cluster has devices runs on a part of it.
void use_part_of_cluster(hardware::Cluster& cluster, const config::Recipe& recipe,
                         std::vector<std::string>& notes) {
  const int64_t world = recipe.parallel.world(), all = cluster.world();
  const bool whole_nodes = world % cluster.per_node == 0;
  if (world >= all || (world > cluster.per_node && !whole_nodes)) return;
  notes.push_back(fmt::format(
      "the recipe uses {} of the cluster's {} devices; --search finds a layout for all", world, all));
  cluster.nodes = whole_nodes ? static_cast<int>(world / cluster.per_node) : 1;
  if (!whole_nodes) cluster.per_node = static_cast<int>(world);
  cluster.domain = std::min<int>(cluster.domain, static_cast<int>(world));
}

int plan_action(const PlanOptions& o) {
  const bool from_file = !o.recipe.path.empty();
  o.wanted.check();
  if (from_file && !o.request.model.empty()) base::fail_user("a recipe and --model are mutually exclusive");
  if (!from_file && o.request.model.empty())
    base::fail_user(
        "a recipe, or --model with --cluster, is required, e.g. quintet plan --model llama3-8b --cluster "
        "\"1x8 h100\"");
  if (!from_file && o.cluster.empty())
    base::fail_user("--model needs --cluster, e.g. --cluster \"2048x8 h100\"");
  if (!from_file && o.recipe.steps > 0)
    base::fail_user(
        "--steps needs a recipe: with --model a single step is planned, and --tokens gives the length "
        "of a run");
  if (from_file && (o.request.seq_len > 0 || o.request.global_batch > 0 || o.request.micro_batch > 0))
    base::fail_user(
        "--seq-len, --global-batch and --micro-batch need --model; with a recipe, use --set "
        "data.seq_len=...");

  if (!o.trace.empty()) base::require_page_file("--trace", o.trace);
  if (!o.html.empty()) base::require_page_file("--html", o.html);

  plan::Assumptions assumptions;
  plan::FilledRecipe filled_recipe;
  report::Findings findings;
  if (!o.cluster.empty()) assumptions.cluster = hardware::parse_cluster(o.cluster);
  // The layout keys that a search holds fixed need not form a complete layout.
  RecipeOptions asked = o.recipe;
  if (o.wanted.search) std::erase_if(asked.sets, search::sets_layout);
  if (from_file) {
    filled_recipe.recipe =
        asked.load(true, {.purpose = o.wanted.search ? config::Purpose::Search : config::Purpose::Run,
                          .ranks = o.cluster.empty() ? 0 : assumptions.cluster.world()});
    if (o.cluster.empty())
      assumptions.cluster = tools::cluster_here(filled_recipe.recipe, findings.notes);
    else if (!o.wanted.search)
      use_part_of_cluster(assumptions.cluster, filled_recipe.recipe, findings.notes);
  } else {
    plan::RecipeRequest request = o.request;
    request.sets = asked.sets;
    request.search = o.wanted.search;
    if (!o.recipe.dtype.empty()) request.sets.push_back("precision.compute=" + o.recipe.dtype);
    filled_recipe = plan::recipe_from_model(request, assumptions.cluster);
  }
  if (o.price >= 0) {
    if (o.wanted.tokens.empty()) base::fail_user("--price needs --tokens, e.g. --tokens 15T");
    assumptions.cluster.price_per_hour = o.price;
    assumptions.cluster.price_source = "--price";
  }
  tools::assume_software(assumptions, o.stack, filled_recipe.recipe);
  assumptions.matmul = arithmetic(o.matmul);
  assumptions.disabled_passes = o.recipe.disabled_passes();
  if (o.wanted.search && !assumptions.disabled_passes.empty())
    base::fail_user(
        "--disable-pass and --search are mutually exclusive: a search assumes all passes; plan the recipe "
        "that it finds with --disable-pass");
  if (o.imbalance != 1 && filled_recipe.recipe.model.moe.experts == 0)
    base::fail_user("--imbalance {} requires a model with experts, and this model has none", o.imbalance);
  assumptions.imbalance = o.imbalance;
  assumptions.storage = o.storage;
  assumptions.storage.write = static_cast<double>(o.write_rate);
  assumptions.storage.read = static_cast<double>(o.read_rate);
  if (!o.documents.empty()) {
    if (!filled_recipe.recipe.data.pack)
      base::fail_user("--documents needs data.pack = true, the recipe has false");
    assumptions.visible_keys = tools::mean_visible_keys(document_lengths(o.documents), filled_recipe.recipe);
  }

  // One live line on a terminal, nothing elsewhere.
  observe::Console& console = observe::Console::standard_error();
  report::FindingsOptions wanted = o.wanted.findings();
  wanted.progress = [&](const std::string& text) { console.set_live(text); };
  if (o.wanted.search) {
    std::vector<std::string> held = o.recipe.sets;
    if (o.request.micro_batch > 0) held.push_back(fmt::format("batch.micro={}", o.request.micro_batch));
    const auto found =
        report::search_layout(wanted, {filled_recipe.recipe, held, !from_file}, assumptions, findings);
    console.clear_live();
    if (!o.json) print_report(report::text_before(findings, assumptions));
    if (!found) {
      if (o.json) print(report::to_json(nullptr, findings));
      if (!o.json)
        for (const std::string& note : findings.notes) print_report(fmt::format("note: {}\n", note));
      return kExitFailure;
    }
    filled_recipe.recipe = *found;
  }
  assumptions.timeline = true;
  plan::Report report = plan::make_plan(filled_recipe.recipe, assumptions);
  report.notes.insert(report.notes.begin(), findings.notes.begin(), findings.notes.end());
  // Keys that a search chooses were not filled in.
  const auto chosen = [&](const std::string& key) {
    return o.wanted.search && (key.starts_with("parallel.") || key.starts_with("batch.micro"));
  };
  for (const std::string& filled : filled_recipe.filled)
    if (!chosen(filled)) report.notes.push_back("filled in " + filled);
  report::add_findings(wanted, report, findings);
  console.clear_live();
  if (!o.trace.empty()) plan::write_trace(*report.timeline, o.trace);
  if (!o.html.empty()) {
    report::PageParts parts = report::page_parts(report, findings);
    parts.provenance = provenance();
    parts.date = base::utc_text();
    base::write_file_atomically(o.html, report::to_html(report, parts));
  }
  if (o.json)
    print(report::to_json(&report, findings));
  else
    print_report(plan::to_text(report) + report::text_after(findings, report));
  return report.memory.fits() ? kExitGood : kExitFailure;
}

}  // namespace

Verb add_plan(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "plan", "predict memory, speed and cost of a recipe on a cluster, without running it");
  auto o = std::make_shared<PlanOptions>();
  o->recipe.add_to(*command, true, "number of steps (run.steps)");
  o->recipe.add_passes_to(*command);
  command->get_option("RECIPE")->required(false);
  command->add_option("--cluster", o->cluster,
                      "the cluster: a phrase (\"2x8 rtx-pro-6000, ib-hdr\") or a file written by doctor "
                      "--probe; default: this machine's CPU, or its GPUs if the recipe uses them");
  command->add_option("--model", o->request.model, "a model preset instead of a recipe")->type_name("PRESET");
  command->add_option("--seq-len", o->request.seq_len, "with --model: tokens per sequence")
      ->type_name("N")
      ->check(integer_in(1, int64_t{1} << 30));
  command->add_option("--global-batch", o->request.global_batch, "with --model: sequences per step")
      ->type_name("N")
      ->check(integer_in(1, int64_t{1} << 30));
  command->add_option("--micro-batch", o->request.micro_batch, "with --model: sequences per micro-batch")
      ->type_name("N")
      ->check(integer_in(1, int64_t{1} << 30));
  command->add_option("--stack", o->stack, "the software stack whose efficiency to assume")
      ->type_name("NAME");
  command->add_option("--matmul", o->matmul, "arithmetic of matmuls, if it differs from the recipe's (fp8)")
      ->type_name("TYPE");
  command->add_option("--imbalance", o->imbalance, "load of the busiest expert rank relative to the mean")
      ->type_name("X")
      ->check(number_in(1, 1e6));
  command
      ->add_option("--write-rate", o->write_rate,
                   "bytes per second, such as 2TB, that the checkpoints' file system accepts from all ranks "
                   "together (default: unknown, no time is shown); checkpoint.bandwidth may limit it further")
      ->type_name("BYTES")
      ->transform(byte_size(1));
  command->add_option("--read-rate", o->read_rate, "the same for reading, for the time of a load")
      ->type_name("BYTES")
      ->transform(byte_size(1));
  command
      ->add_option("--metadata-rate", o->storage.metadata,
                   "metadata operations per second that the file system takes from all ranks together, for "
                   "the time of a checkpoint")
      ->type_name("N")
      ->capture_default_str()
      ->check(number_in(1, 1e12));
  command
      ->add_option("--documents", o->documents,
                   "packed documents, whose masks make attention cheaper: their length in tokens, or a file "
                   "of lengths")
      ->type_name("N|FILE");
  command->add_option("--price", o->price, "with --tokens: price of one device in USD per hour")
      ->type_name("USD")
      ->check(number_in(0, 1e6));
  command->add_option("--trace", o->trace, "write a trace of the simulated step, for Perfetto")
      ->type_name("FILE");
  command->add_option("--html", o->html, "write the report as an HTML page")->type_name("FILE");
  command->add_flag("--json", o->json, "print JSON");
  o->wanted.add_to(*command);
  command->footer("Exit code 1 if the recipe does not fit in memory.");
  return {command, [o] { return plan_action(*o); }};
}

}  // namespace quintet::cli
