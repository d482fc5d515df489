#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/error_codes.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/number.h"
#include "cli/provenance.h"
#include "cli/signals.h"
#include "cli/verbs.h"
#include "config/environment.h"
#include "config/parse.h"
#include "observe/console.h"
#include "report/run_page.h"
#include "tools/generate.h"
#include "tools/recipe_report.h"
#include "train/loop.h"

namespace quintet::cli {
namespace {

constexpr observe::LineFormat kFailure{.style = observe::Style::Error, .styled = 8, .indent = 4};

struct TrainOptions {
  RecipeOptions recipe;
  bool overwrite = false, json = false, dry_run = false, verbose = false, weights_only = false;
  std::string trace, cluster, from;
  std::vector<std::string> allow, load;
  int64_t step = -1;  // of --from; -1: the newest
  int64_t sample = 80;
};

// A run without its page is still a run: it can be drawn later.
void write_report(const config::Recipe& recipe, observe::Console& console) {
  const train::RunFolder folder(recipe.run.dir);
  try {
    report::write_run_page({folder.path()}, folder.report());
    console.print_line(fmt::format("{:<13}{}", "report", folder.report().string()), observe::kLabelled);
  } catch (const base::UserError& e) {
    console.print_line(fmt::format("warning: no report: {}", e.what()));
  }
}

void report_dry_run(const TrainOptions& o, const train::RunResult& result, observe::Console& console) {
  console.print_line(
      fmt::format("{:<13}ready for {} steps: compiled and verified, data, memory and run folder "
                  "checked; nothing was trained or written",
                  "dry run", base::thousands(result.recipe.run.steps)),
      observe::kLabelled);
  if (o.json) print(train::dry_run_json(result.recipe, result.summary));
}

// Why the exit code is 1, with codes; empty otherwise.
std::vector<std::string> problems_of(const train::RunResult& result) {
  std::vector<std::string> problems;
  const train::RunEnd end = result.summary.end;
  if (end == train::RunEnd::NonFinite) problems.push_back(base::with_code(result.message, "Q9005"));
  if (end == train::RunEnd::SaveFailed) problems.push_back(base::with_code(result.message, "Q9004"));
  if (!result.incomplete.empty())
    problems.push_back("the run folder is incomplete: " + base::with_code(result.incomplete, "Q9004"));
  return problems;
}

// The summary, with problems as every verb reports them.
std::string result_json(const train::RunResult& result) {
  auto json = nlohmann::ordered_json::parse(train::to_json(result.summary));
  for (const std::string& problem : problems_of(result))
    json["problems"].push_back({{"code", base::code_in(problem)}, {"rule", problem}});
  return base::json_text(json, 2) + "\n";
}

int train_action(const TrainOptions& o) {
  // mpirun gives its ranks a terminal even if its own output is a pipe: plain lines suit both.
  observe::Console::Options where{
      .descriptor = o.json ? STDERR_FILENO : STDOUT_FILENO, .terminal = {}, .width = {}};
  const std::optional<config::Launch> launch = config::detect_launch();
  if (launch) where.terminal = false;
  observe::Console console(where);
  train::RunOptions options;
  options.overwrite = o.overwrite;
  options.from = o.from;
  if (o.step >= 0) options.from_step = o.step;
  options.weights_only = o.weights_only;
  options.load = o.load;
  options.allow = o.allow;
  options.version = QUINTET_VERSION;
  options.dry_run = o.dry_run;
  options.verbose = o.verbose;
  options.disabled_passes = o.recipe.disabled_passes();
  options.provenance = provenance();
  options.console = &console;
  options.interrupted = asked_to_stop;
  options.ending = [] { return asked_to_stop() != 0; };
  options.on_last_save = note_last_save;
  options.on_progress = note_progress;
  options.on_step = [](int64_t, const train::StepResult&) { note_step_end(); };
  if (!o.trace.empty()) options.trace = train::parse_trace_range(o.trace);
  install_signal_handlers();
  const auto load = [&] {
    config::Recipe recipe = o.recipe.load();
    if (o.overwrite) train::require_recipe_stays(o.recipe.path, train::RunFolder(recipe.run.dir));
    if (o.recipe.run_dir.empty()) train::require_in_place(o.recipe.path, recipe.run.dir);
    for (const std::string& warning : tools::cluster_warnings(recipe, o.cluster))
      if (!launch || launch->rank == 0)
        console.print_line("warning: " + warning, {.style = observe::Style::Warning});
    const bool whole = recipe.parallel.pp > 1 || recipe.run.device == config::DeviceKind::Cuda;
    set_abandonable(whole ? 0 : recipe.batch.accumulation);
    return recipe;
  };
  const train::RunResult result = train::run(load, options);
  if (o.dry_run) {
    if (result.is_first) report_dry_run(o, result, console);
    return kExitGood;
  }
  const train::RunEnd end = result.summary.end;
  if (result.is_first) {
    console.print_line("");
    const bool complete = result.incomplete.empty();
    if (end == train::RunEnd::Interrupted)
      console.print_line(fmt::format(
          "interrupted {} step {}; {}",
          result.abandoned_step > 0   ? "in"
          : result.summary.steps == 0 ? "before"
                                      : "after",
          std::max<int64_t>({1, result.abandoned_step, result.summary.steps}),
          complete ? fmt::format("checkpoint {}saved, the same command continues",
                                 result.abandoned_step > 0 ? fmt::format("of step {} ", result.summary.steps)
                                                           : std::string())
                   : "the run folder is incomplete: see below before you continue"));
    for (const std::string& line :
         train::summary_lines(result.summary, train::RunFolder(result.recipe.run.dir)))
      console.print_line(line, observe::kLabelled);
    write_report(result.recipe, console);
    if (end == train::RunEnd::Finished && complete)
      if (const auto text = tools::sample_of(result.recipe, o.sample))
        console.print_line("sample       " + *text,
                           {.style = observe::Style::Bold, .styled = 13, .indent = 13, .break_words = true});
    if (o.json) print(result_json(result));
    for (const std::string& problem : problems_of(result))
      observe::Console::standard_error().print_line("quintet: " + problem, kFailure);
  }
  if (!result.incomplete.empty()) return kExitFailure;
  if (end == train::RunEnd::Interrupted) return kExitSignal + result.signal;
  return end == train::RunEnd::Finished ? kExitGood : kExitFailure;
}

}  // namespace

Verb add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "train a recipe");
  auto o = std::make_shared<TrainOptions>();
  o->recipe.add_to(*command, true, "number of steps (run.steps)");
  command->add_option("--run-dir", o->recipe.run_dir, "run folder (run.dir)")->type_name("FOLDER");
  add_cluster_option(*command, o->cluster);
  o->recipe.add_passes_to(*command);
  command->add_flag(
      "--fresh,--overwrite", o->overwrite,
      "start at step 1 and replace an existing run in the run folder, its checkpoints included");
  command
      ->add_option("--from", o->from, "start from this checkpoint, unless the run folder has one of its own")
      ->type_name("CHECKPOINT");
  command->add_option("--step", o->step, "with --from: the checkpoint of this step instead of the newest")
      ->type_name("N")
      ->check(integer_in(0, int64_t{1} << 53));
  command
      ->add_option("--load", o->load,
                   "with --from: PATTERN=fresh initialises the tensors of these names as at step 1, "
                   "PATTERN=ignore leaves those out that only the checkpoint has; may be repeated")
      ->type_name("PATTERN=POLICY");
  command->add_flag("--weights-only", o->weights_only,
                    "with --from: take only the weights, and start at step 1");
  command
      ->add_option("--allow", o->allow,
                   "continue although this recipe key differs from the checkpoint's; may be repeated")
      ->type_name("KEY");
  command->add_flag("--dry-run", o->dry_run,
                    "do everything but the steps: compile and verify, open the data, reserve the memory, "
                    "check the run folder; write nothing");
  command->add_flag("-v,--verbose", o->verbose, "print the full header: every setting and its effect");
  command->add_option("--trace", o->trace, "write a trace of these steps to trace.json, for Perfetto")
      ->type_name("steps=FIRST-LAST");
  command
      ->add_option("--sample", o->sample,
                   "length of the sample text printed at the end (byte tokenizer, small models)")
      ->type_name("N")
      ->capture_default_str()
      ->check(integer_in(0, int64_t{1} << 20));
  command->add_flag("--json", o->json,
                    "print the summary (with --dry-run: the plan) as JSON on standard output, all else on "
                    "standard error");
  command->footer(
      "A run folder with a checkpoint is continued from the newest complete one, in the layout of the "
      "recipe.\n"
      "Ranks are threads of this process, or processes under mpirun and srun (run.backend).\n"
      "Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 end the set-up or the step (on a CPU without pipeline stages a "
      "long step is abandoned at the next micro-batch), save and exit with 128 + the signal number; a second "
      "one stops immediately.\n"
      "--set memory.recompute=fit --set memory.budget=6GiB limits the memory of each rank at the least extra "
      "time.");
  return {command, [o] { return train_action(*o); }};
}

}  // namespace quintet::cli
