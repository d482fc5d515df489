#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/output_path.h"
#include "cli/number.h"
#include "cli/provenance.h"
#include "cli/search_options.h"
#include "cli/verbs.h"
#include "observe/console.h"
#include "plan/text.h"
#include "plan/timeline.h"
#include "tools/predict.h"

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

void check(const PlanOptions& o) {
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
  if (o.price >= 0 && o.wanted.tokens.empty()) base::fail_user("--price needs --tokens, e.g. --tokens 15T");
  if (o.wanted.search && !o.recipe.disabled_passes().empty())
    base::fail_user(
        "--disable-pass and --search are mutually exclusive: a search assumes all passes; plan the recipe "
        "that it finds with --disable-pass");
  base::require_distinct_files({{"--emit", o.wanted.emit}, {"--html", o.html}, {"--trace", o.trace}});
  if (!o.trace.empty()) base::require_page_file("--trace", o.trace);
  if (!o.html.empty()) base::require_page_file("--html", o.html);
}

int plan_action(const PlanOptions& o) {
  check(o);
  // One live line on a terminal, nothing elsewhere.
  observe::Console& console = observe::Console::standard_error();
  tools::PredictOptions options{.request = o.request,
                                .sets = o.recipe.sets,
                                .dtype = o.recipe.dtype,
                                .cluster = o.cluster,
                                .stack = o.stack,
                                .matmul = o.matmul,
                                .documents = o.documents,
                                .imbalance = o.imbalance,
                                .price = o.price,
                                .storage = o.storage,
                                .disabled_passes = o.recipe.disabled_passes(),
                                .search = o.wanted.search,
                                .findings = o.wanted.findings()};
  options.storage.write = static_cast<double>(o.write_rate);
  options.storage.read = static_cast<double>(o.read_rate);
  options.findings.progress = [&](const std::string& text) { console.set_live(text); };
  if (!o.recipe.path.empty())
    options.recipe = [&](const std::vector<std::string>& sets, const config::Use& use) {
      RecipeOptions recipe = o.recipe;
      recipe.sets = sets;
      return recipe.load(true, use);
    };
  options.searched = [&](const report::Findings& findings, const plan::Assumptions& assumptions) {
    console.clear_live();
    if (!o.json) print_report(report::text_before(findings, assumptions));
  };
  const tools::Prediction prediction = tools::predict(options);
  console.clear_live();
  const report::Findings& findings = prediction.findings;
  if (!prediction.report) {
    if (o.json) print(report::to_json(nullptr, findings));
    if (!o.json)
      for (const std::string& note : findings.notes) print_report(fmt::format("note: {}\n", note));
    return kExitFailure;
  }
  const plan::Report& report = *prediction.report;
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
