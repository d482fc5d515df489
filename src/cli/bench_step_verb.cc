#include "cli/bench_step_verb.h"

#include "observe/console.h"
#include "tools/bench_step.h"

namespace quintet::cli {
namespace {

struct Options {
  RecipeOptions recipe;
  tools::StepBenchOptions bench;
  bool json = false;
};

int action(const Options& o) {
  const config::Recipe recipe = o.recipe.load(false);
  tools::StepBenchOptions options = o.bench;
  if (o.recipe.steps > 0) options.steps = o.recipe.steps;
  options.log = [](const std::string& line) { observe::Console::standard_error().print_line(line); };
  if (const auto bench = tools::bench_step(recipe, options))
    print(o.json ? tools::to_json(*bench) : tools::to_table(*bench));
  return kExitGood;
}

}  // namespace

Verb add_bench_step(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("step", "time a recipe's step: tokens/s, TFLOP/s, memory, where the time goes");
  auto o = std::make_shared<Options>();
  o->recipe.add_to(*command, true, "how many steps to time (20)");
  command->add_option("--warmup", o->bench.warmup, "steps before the timed ones, at least 3")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{3}, int64_t{1} << 20));
  command->add_option("--warm", o->bench.warmup_seconds, "and at least so long, until clocks have settled")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 3600.0));
  command
      ->add_option(
          "--floors", o->bench.alone_seconds,
          "time every kind of instruction alone for so long, on a GPU, and hold the step against that")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.001, 60.0));
  command->add_option("--peak", o->bench.peak_tflops, "peak of one device, for MFU; else from the catalogue")
      ->type_name("TFLOPS")
      ->check(CLI::PositiveNumber);
  command->add_flag("--json", o->json, "the result as JSON");
  command->footer("Tokens are random: no data is read and nothing is written. Ranks as in 'quintet train'.");
  return {command, [o] { return action(*o); }};
}

}  // namespace quintet::cli
