#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "cli/verbs.h"
#include "compiler/pipeline_schedule.h"
#include "observe/metrics.h"
#include "schedule/check.h"
#include "schedule/gantt.h"
#include "schedule/generators.h"
#include "schedule/simulate.h"
#include "schedule/synthesize.h"
#include "schedule/text.h"

namespace quintet::cli {
namespace {

using schedule::Schedule;
using schedule::Timeline;

// Of a whole stage: a chunk costs its share. `comm` is of one transfer.
struct StageCosts {
  double f = 1, b = 1, w = 1, comm = 0;
};

struct ScheduleOptions {
  RecipeOptions recipe;
  std::string name, file, costs, svg;
  int pp = 0, micro = 0, chunks = 0;
  double memory = 0, freed_at_b = 0;  // 0: no limit
  bool synthesize = false, gantt = false, json = false;
};

StageCosts parse_costs(const std::string& text) {
  StageCosts costs;
  double* const places[] = {&costs.f, &costs.b, &costs.w, &costs.comm};
  size_t found = 0;
  for (size_t at = 0; !text.empty() && at <= text.size(); ++found) {
    const size_t end = std::min(text.find(',', at), text.size());
    double value = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, value);
    if (error != std::errc{} || stop != text.data() + end || !std::isfinite(value) || value < 0)
      base::fail_user("--costs {}: '{}' is no time; expected F,B,W or F,B,W,comm such as 1,1,0.8,0.05", text,
                      text.substr(at, end - at));
    if (found < 4) *places[found] = value;
    at = end + 1;
  }
  if (text.empty()) return costs;
  if (found != 3 && found != 4)
    base::fail_user("--costs {}: {} number{}; expected F,B,W or F,B,W,comm", text, found,
                    found == 1 ? "" : "s");
  if (costs.f + costs.b + costs.w == 0)
    base::fail_user("--costs {}: at least one of F, B, W is above 0", text);
  return costs;
}

// A chunk takes its share of a stage.
schedule::Costs costs_of(const Schedule& s, const StageCosts& costs) {
  const double share = 1.0 / s.chunks;
  return schedule::Costs::uniform(s, costs.f * share, costs.b * share, costs.w * share, costs.comm);
}

schedule::Synthesis synthesize(const ScheduleOptions& o, const StageCosts& costs) {
  schedule::Problem problem{.ranks = o.pp,
                            .micro_batches = o.micro,
                            .costs = [costs](const Schedule& s) { return costs_of(s, costs); },
                            .freed_at_b = o.freed_at_b};
  if (o.memory > 0) problem.memory = o.memory;
  if (o.chunks > 0) problem.max_chunks = o.chunks;
  return schedule::synthesize(problem);
}

// How it came about and how good it is, as comments of a schedule's text.
std::string explain(const schedule::Synthesis& s) {
  const auto best = std::min_element(s.named.begin(), s.named.end(),
                                     [](const auto& a, const auto& b) { return a.makespan < b.makespan; });
  return fmt::format(
      "# {}: takes {:.6g}, at most {:.2f} % above the least possible ({:.6g})\n# best named schedule: {}\n",
      s.origin, s.timeline.makespan, 100 * s.gap(), s.bound,
      std::isfinite(best->makespan) ? fmt::format("{} with {:.6g} ({:+.2f} %)", best->name, best->makespan,
                                                  100 * (best->makespan / s.timeline.makespan - 1))
                                    : "none keeps to the memory");
}

Schedule schedule_of(const ScheduleOptions& o) {
  if (o.name.empty() && (o.pp != 0 || o.micro != 0 || o.chunks != 0))
    base::fail_user(
        "--pp, --micro and --chunks go with --name or --synthesize; {}",
        o.file.empty()
            ? "in a recipe they are parallel.pp, batch.accumulation and parallel.chunks (--set KEY=VALUE)"
            : "a file has its own numbers");
  if (!o.file.empty()) return schedule::load(o.file);
  if (o.name.empty()) {
    const config::Recipe recipe = o.recipe.load();
    if (recipe.parallel.pp == 1)
      base::fail_user(
          "{}: parallel.pp is 1: without a pipeline there is no schedule; try --set parallel.pp=2",
          o.recipe.path);
    return compiler::pipeline_schedule(recipe);
  }
  if (o.pp == 0 || o.micro == 0)
    base::fail_user("--name {} needs --pp (stages) and --micro (micro-batches), for example --pp 4 --micro 8",
                    o.name);
  Schedule made = schedule::make_schedule(o.name, o.pp, o.chunks, o.micro);
  schedule::check(made);
  return made;
}

std::string summary(const Schedule& s, const Timeline& line) {
  return fmt::format(
      "{}: {} stages x {} chunk{}, {} micro-batches; bubble {:.2f} % ({:.2f} % by rank), in flight {}",
      s.name, s.stages, s.chunks, s.chunks == 1 ? "" : "s", s.micro_batches, 100 * line.bubble_rate(),
      100 * line.span_bubble_rate(), fmt::join(schedule::in_flight(s).until_w, " "));
}

std::string to_json(const Schedule& s, const StageCosts& costs, const Timeline& line) {
  using observe::json_number;
  const schedule::InFlight held = schedule::in_flight(s);
  std::string ranks;
  for (size_t r = 0; r < s.ranks.size(); ++r) {
    std::string actions;
    for (size_t i = 0; i < s.ranks[r].size(); ++i) {
      const schedule::Action& a = s.ranks[r][i];
      const schedule::Slot& slot = line.ranks[r][i];
      actions += fmt::format("{}\n      {{\"action\": \"{}\", \"start\": {}, \"end\": {}{}}}",
                             i == 0 ? "" : ",", to_text(a), json_number(slot.start), json_number(slot.end),
                             a.with_next ? ", \"mixed_with_next\": true" : "");
    }
    ranks += fmt::format(
        "{}\n    {{\"rank\": {}, \"in_flight\": {}, \"in_flight_until_b\": {}, \"promised\": {}, \"busy\": "
        "{}, "
        "\"actions\": [{}\n    ]}}",
        r == 0 ? "" : ",", r, held.until_w[r], held.until_b[r],
        s.max_in_flight.empty() ? "null" : std::to_string(s.max_in_flight[r]), json_number(line.busy[r]),
        actions);
  }
  return fmt::format(
      "{{\n  \"name\": {}, \"stages\": {}, \"chunks\": {}, \"micro_batches\": {}, \"placement\": \"{}\", "
      "\"splits_backward\": {},\n  \"costs\": {{\"f\": {}, \"b\": {}, \"w\": {}, \"comm\": {}}},\n"
      "  \"makespan\": {}, \"bubble\": {}, \"bubble_rate\": {}, \"span_bubble\": {}, \"span_bubble_rate\": "
      "{},\n"
      "  \"ranks\": [{}\n  ]\n}}\n",
      observe::json_string(s.name), s.stages, s.chunks, s.micro_batches, to_text(s.placement),
      s.splits_backward, json_number(costs.f), json_number(costs.b), json_number(costs.w),
      json_number(costs.comm), json_number(line.makespan), json_number(line.bubble()),
      json_number(line.bubble_rate()), json_number(line.span_bubble()), json_number(line.span_bubble_rate()),
      ranks);
}

int schedule_action(const ScheduleOptions& o) {
  const int sources = !o.recipe.path.empty() + !o.name.empty() + !o.file.empty() + o.synthesize;
  if (sources != 1)
    base::fail_user(
        "'quintet schedule' takes one of RECIPE, --name NAME, --synthesize and --check FILE; {} are given",
        sources);
  if (!o.synthesize && (o.memory != 0 || o.freed_at_b != 0))
    base::fail_user("--memory and --freed-at-b go with --synthesize");
  if (o.synthesize && (o.pp == 0 || o.micro == 0))
    base::fail_user(
        "--synthesize needs --pp (stages) and --micro (micro-batches), for example --pp 4 --micro 8");
  const StageCosts costs = parse_costs(o.costs);
  std::string note;
  Schedule s;
  if (o.synthesize) {
    schedule::Synthesis made = synthesize(o, costs);
    note = explain(made);
    s = std::move(made.schedule);
  } else {
    s = schedule_of(o);
  }
  const Timeline line = schedule::simulate(s, costs_of(s, costs));
  if (!o.svg.empty()) base::write_file_atomically(o.svg, schedule::svg_gantt(s, line));
  if (o.json)
    print(to_json(s, costs, line));
  else if (o.gantt)
    print(schedule::text_gantt(s, line));
  else if (!o.svg.empty())
    print(fmt::format("{}\nwritten to {}\n", summary(s, line), o.svg));
  else if (!o.file.empty())
    print(fmt::format("good: {}\n", summary(s, line)));
  else
    print(note + schedule::print(s));
  return kExitGood;
}

}  // namespace

Verb add_schedule(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("schedule", "print, draw or check the order of a pipeline's micro-batches");
  auto o = std::make_shared<ScheduleOptions>();
  o->recipe.add_to(*command, true, "how many steps (run.steps)");
  command->get_option("RECIPE")->required(false);
  command->add_option("--name", o->name,
                      fmt::format("by name instead: {}", fmt::join(schedule::schedule_names(), ", ")));
  const auto count = CLI::Range(1, 1 << 20);
  command->add_flag("--synthesize", o->synthesize,
                    "one made for --costs and --memory, never slower than the best named one");
  command->add_option("--memory", o->memory, "with --synthesize: stage activations that a rank may hold")
      ->type_name("X")
      ->check(CLI::PositiveNumber);
  command->add_option("--freed-at-b", o->freed_at_b, "with --synthesize: share of them that B gives back (0)")
      ->type_name("X")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--pp", o->pp, "with --name or --synthesize: stages")->type_name("N")->check(count);
  command->add_option("--micro", o->micro, "with --name or --synthesize: micro-batches")
      ->type_name("N")
      ->check(count);
  command
      ->add_option(
          "--chunks", o->chunks,
          "with --name: virtual stages per rank (its own number when not given); with --synthesize: at "
          "most so many (2)")
      ->type_name("N")
      ->check(count);
  command->add_option("--check", o->file, "check a schedule file instead, and draw it if asked")
      ->type_name("FILE");
  auto* gantt = command->add_flag("--gantt", o->gantt, "a chart in text");
  command->add_option("--svg", o->svg, "write a chart as SVG")->type_name("FILE");
  command
      ->add_flag("--json", o->json, "bubble, activations in flight and every action with its times, as JSON")
      ->excludes(gantt);
  command
      ->add_option(
          "--costs", o->costs,
          "times of a stage's forward, input gradients, weight gradients, and of a transfer (1,1,1,0)")
      ->type_name("F,B,W[,comm]");
  command->footer(
      "The text that is printed by default is what a file holds: edit it and run it with\n"
      "parallel.schedule = \"file:PATH\". docs/schedules.md explains it.");
  return {command, [o] { return schedule_action(*o); }};
}

}  // namespace quintet::cli
