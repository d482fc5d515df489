#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "base/output_path.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "cli/without_effect.h"
#include "compiler/pipeline_schedule.h"
#include "observe/console.h"
#include "schedule/check.h"
#include "schedule/gantt.h"
#include "schedule/generators.h"
#include "schedule/synthesize.h"
#include "schedule/text.h"
#include "tools/schedule_report.h"

namespace quintet::cli {
namespace {

using schedule::Schedule;
using schedule::Timeline;

struct ScheduleOptions {
  RecipeOptions recipe;
  std::string name, file, costs, svg;
  int pp = 0, micro = 0, chunks = 0, group = 0;
  double memory = 0, freed_at_b = 0;  // 0: no limit
  bool synthesize = false, gantt = false, json = false;
};

constexpr int64_t kMaxSynthesized = int64_t{1} << 14;  // micro-batches x stages: minutes of search

schedule::Synthesis synthesize(const ScheduleOptions& o, const tools::StageCosts& costs) {
  if (const int64_t size = int64_t{o.pp} * o.micro; size > kMaxSynthesized)
    base::fail_user("--synthesize: {} stages x {} micro-batches = {}; the limit is {}", o.pp, o.micro, size,
                    kMaxSynthesized);
  schedule::Problem problem{.ranks = o.pp,
                            .micro_batches = o.micro,
                            .costs = [costs](const Schedule& s) { return tools::costs_of(s, costs); },
                            .freed_at_b = o.freed_at_b};
  if (o.memory > 0) problem.memory = o.memory;
  if (o.chunks > 0) problem.max_chunks = o.chunks;
  observe::Console& console = observe::Console::standard_error();
  console.set_live(
      fmt::format("searching for a schedule of {} stages x {} micro-batches ...", o.pp, o.micro));
  schedule::Synthesis made = schedule::synthesize(problem);
  console.clear_live();
  return made;
}

Schedule schedule_of(const ScheduleOptions& o) {
  if (o.name.empty() && (o.pp != 0 || o.micro != 0 || o.chunks != 0 || o.group != 0))
    base::fail_user(
        "--pp, --micro and --chunks need --name or --synthesize, --group needs --name; {}",
        o.file.empty()
            ? "in a recipe, set parallel.pp, batch.accumulation and parallel.chunks (--set KEY=VALUE)"
            : "a schedule file defines its own sizes");
  if (!o.file.empty()) return schedule::load(o.file);
  if (o.name.empty()) {
    const config::Recipe recipe = o.recipe.load();
    if (recipe.parallel.pp == 1)
      base::fail_user("{}: parallel.pp is 1, so there is no pipeline schedule; try --set parallel.pp=2",
                      o.recipe.path);
    return compiler::pipeline_schedule(recipe);
  }
  if (o.pp == 0 || o.micro == 0)
    base::fail_user("--name {} needs --pp (stages) and --micro (micro-batches), e.g. --pp 4 --micro 8",
                    o.name);
  Schedule made = schedule::make_schedule(o.name, o.pp, o.chunks, o.micro, o.group);
  schedule::check(made);
  return made;
}

int schedule_action(const ScheduleOptions& o) {
  const int sources = !o.recipe.path.empty() + !o.name.empty() + !o.file.empty() + o.synthesize;
  if (sources != 1)
    base::fail_user(
        "'quintet schedule' takes exactly one of RECIPE, --name NAME, --synthesize and --check FILE; got {}",
        sources);
  if (!o.synthesize && (o.memory != 0 || o.freed_at_b != 0))
    base::fail_user("--memory and --freed-at-b need --synthesize");
  if (o.synthesize && o.group != 0)
    base::fail_user(
        "--group has no effect on --synthesize, which orders micro-batches freely; it needs --name "
        "interleaved");
  if (o.synthesize && (o.pp == 0 || o.micro == 0))
    base::fail_user("--synthesize needs --pp (stages) and --micro (micro-batches), e.g. --pp 4 --micro 8");
  if (!o.svg.empty()) base::require_page_file("--svg", o.svg);
  const tools::StageCosts costs = tools::parse_costs(o.costs);
  std::string note;
  Schedule s;
  if (o.synthesize) {
    schedule::Synthesis made = synthesize(o, costs);
    note = tools::explain(made);
    s = std::move(made.schedule);
  } else {
    s = schedule_of(o);
  }
  const Timeline line = schedule::simulate(s, tools::costs_of(s, costs));
  if (!o.svg.empty()) base::write_file_atomically(o.svg, schedule::svg_gantt(s, line));
  if (o.json)
    print(tools::to_json(s, costs, line));
  else if (o.gantt)
    print_report(schedule::text_gantt(s, line, 0, report_columns()));
  else if (!o.svg.empty())
    print_report(fmt::format("{}\nwrote {}\n", tools::summary(s, line), o.svg));
  else if (!o.file.empty())
    print_report(fmt::format("good: {}\n", tools::summary(s, line)));
  else
    print_report(note + schedule::print(s));
  return kExitGood;
}

}  // namespace

Verb add_schedule(CLI::App& app) {
  CLI::App* command = app.add_subcommand("schedule", "print, draw or check a pipeline schedule");
  auto o = std::make_shared<ScheduleOptions>();
  o->recipe.add_to(*command, true, "number of steps (run.steps)");
  command->get_option("RECIPE")->required(false);
  command->add_option("--name", o->name,
                      fmt::format("a named schedule: {}", fmt::join(schedule::schedule_names(), ", ")));
  const auto count = integer_in(1, int64_t{1} << 20);
  command->add_flag("--synthesize", o->synthesize,
                    "synthesize a schedule for --costs and --memory, never slower than the best named one");
  command->add_option("--memory", o->memory, "with --synthesize: limit on stage activations per rank")
      ->type_name("X")
      ->check(number_above_zero(1e9));
  command->add_option("--freed-at-b", o->freed_at_b, "with --synthesize: fraction of them freed after B (0)")
      ->type_name("X")
      ->check(number_in(0, 1));
  command->add_option("--pp", o->pp, "with --name or --synthesize: number of stages")
      ->type_name("N")
      ->check(count);
  command->add_option("--micro", o->micro, "with --name or --synthesize: number of micro-batches")
      ->type_name("N")
      ->check(count);
  command
      ->add_option("--group", o->group,
                   "with --name interleaved: micro-batches that pass a chunk in a row (the stages)")
      ->type_name("N")
      ->check(count);
  command
      ->add_option("--chunks", o->chunks,
                   "with --name: virtual stages per rank (default of the schedule); with --synthesize: their "
                   "maximum (2)")
      ->type_name("N")
      ->check(count);
  command->add_option("--check", o->file, "check a schedule file")->type_name("FILE");
  auto* gantt = command->add_flag("--gantt", o->gantt, "draw a chart as text");
  command->add_option("--svg", o->svg, "write a chart as SVG")->type_name("FILE");
  command
      ->add_flag("--json", o->json,
                 "print bubble, activations in flight and the times of all actions as JSON")
      ->excludes(gantt);
  command
      ->add_option(
          "--costs", o->costs,
          "cost of a stage's forward, input gradients, weight gradients, and of a transfer (1,1,1,0)")
      ->type_name("F,B,W[,comm]");
  command->footer(
      "The default output is a schedule file: edit it and use it with parallel.schedule = \"file:PATH\".\n"
      "docs/schedules.md describes the format.");
  return {command, [o, command] {
            if (o->recipe.path.empty())
              refuse_without_effect(*command, {"--set", "--steps", "--dtype"},
                                    "they change a recipe, and none is given");
            if (!o->synthesize && !o->gantt && !o->json && o->svg.empty() && o->file.empty())
              refuse_without_effect(*command, {"--costs"},
                                    "a schedule file has no times; add --gantt, --svg FILE or --json");
            return schedule_action(*o);
          }};
}

}  // namespace quintet::cli
