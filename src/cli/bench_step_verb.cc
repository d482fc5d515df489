#include "cli/bench_step_verb.h"

#include "base/error.h"
#include "base/file.h"
#include "cli/number.h"
#include "config/names.h"
#include "observe/console.h"
#include "tools/bench_step.h"

namespace quintet::cli {
namespace {

struct Options {
  RecipeOptions recipe;
  tools::StepBenchOptions bench;
  std::string documents;
  bool json = false;
};

int action(const Options& o) {
  const config::Recipe recipe = o.recipe.load(false);
  if (o.bench.alone_seconds > 0 && recipe.run.device != config::DeviceKind::Cuda)
    base::fail_user(
        "--floors {} times instructions on a GPU, but run.device is \"{}\": leave it out, or add "
        "--set run.device=cuda",
        o.bench.alone_seconds, config::name_of(recipe.run.device));
  tools::StepBenchOptions options = o.bench;
  if (o.recipe.steps > 0) options.steps = o.recipe.steps;
  if (!o.documents.empty())
    options.document_lengths = tools::parse_document_lengths(base::read_file(o.documents), o.documents);
  options.log = [](const std::string& line) { observe::Console::standard_error().print_line(line); };
  if (const auto bench = tools::bench_step(recipe, options))
    o.json ? print(tools::to_json(*bench)) : print_report(tools::to_table(*bench));
  return kExitGood;
}

}  // namespace

Verb add_bench_step(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("step", "measure a recipe's step: tokens/s, TFLOP/s, memory, time per op class");
  auto o = std::make_shared<Options>();
  o->recipe.add_to(*command, true, "number of timed steps (20)");
  command->add_option("--warmup", o->bench.warmup, "number of warm-up steps, at least 3")
      ->type_name("N")
      ->capture_default_str()
      ->check(integer_in(3, int64_t{1} << 20));
  command->add_option("--warm", o->bench.warmup_seconds, "minimum warm-up time, until clocks have settled")
      ->type_name("SECONDS")
      ->check(number_in(0, 3600));
  command
      ->add_option(
          "--floors", o->bench.alone_seconds,
          "time every kind of instruction in isolation for this long, on a GPU, and compare the step with it")
      ->type_name("SECONDS")
      ->check(number_in(0.001, 60));
  command->add_option("--peak", o->bench.peak_tflops, "peak of one device, for MFU (from the catalogue)")
      ->type_name("TFLOPS")
      ->check(number_above_zero(1e9));
  command
      ->add_option(
          "--documents", o->documents,
          "pack sequences from documents of the lengths in this file, in tokens (needs data.pack; default: "
          "one document per sequence)")
      ->type_name("FILE");
  command->add_flag("--json", o->json, "print JSON");
  command->footer(
      "Uses random tokens: reads no data and writes nothing. Ranks are started as in 'quintet train'.");
  return {command, [o] { return action(*o); }};
}

}  // namespace quintet::cli
