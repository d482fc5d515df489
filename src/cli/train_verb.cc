#include <fmt/format.h>
#include <unistd.h>

#include <cctype>

#include "cli/signals.h"
#include "cli/verbs.h"
#include "config/environment.h"
#include "observe/console.h"
#include "tools/generate.h"
#include "train/loop.h"
#include "train/weights_file.h"

namespace quintet::cli {
namespace {

constexpr double kMaxSampleFlops = 2e11;  // a few seconds on a small machine

struct TrainOptions {
  RecipeOptions recipe;
  bool overwrite = false, json = false;
  std::string trace;
  int64_t sample = 80;
};

int64_t parameters_in(const base::Path& weights) {
  int64_t count = 0;
  const checkpoint::SafetensorsFile file(weights.string());
  for (const checkpoint::TensorInfo& t : file.tensors()) count += t.count();
  return count;
}

// What the trained model writes. Only where a token is a byte, and where it takes seconds at most.
void show_sample(const train::RunResult& result, int64_t tokens, observe::Console& console) {
  const train::RunFolder folder(result.recipe.run.dir);
  if (tokens == 0 || result.recipe.data.tokenizer != "bytes") return;
  if (tools::generate_flops(result.recipe, parameters_in(folder.weights()), tokens) > kMaxSampleFlops) return;
  tools::GenerateOptions options;
  options.tokens = tokens;
  options.seed = static_cast<uint64_t>(result.recipe.run.seed);
  options.threads = train::kernel_threads(result.recipe, 1);
  std::string text = options.prompt + tools::generate(folder.path(), options);
  for (char& c : text)  // a model may write what would make a terminal act up
    if (std::iscntrl(static_cast<unsigned char>(c)) && c != '\n' && c != '\t') c = '?';
  console.print_line("sample       " + text);
}

int train_action(const TrainOptions& o) {
  // mpirun gives its ranks a terminal of its own whatever its own output is: plain lines suit both.
  observe::Console::Options where{
      .descriptor = o.json ? STDERR_FILENO : STDOUT_FILENO, .terminal = {}, .width = {}};
  if (config::detect_launch()) where.terminal = false;
  observe::Console console(where);
  train::RunOptions options;
  options.overwrite = o.overwrite;
  options.console = &console;
  options.interrupted = asked_to_stop;
  if (!o.trace.empty()) options.trace = train::parse_trace_range(o.trace);
  install_signal_handlers();
  const train::RunResult result = train::run([&] { return o.recipe.load(); }, options);
  const train::RunEnd end = result.summary.end;
  if (result.is_first) {
    console.print_line("");
    if (end == train::RunEnd::Interrupted)
      console.print_line(
          fmt::format("interrupted after step {}; the weights are saved", result.summary.steps));
    for (const std::string& line :
         train::summary_lines(result.summary, train::RunFolder(result.recipe.run.dir)))
      console.print_line(line);
    if (end == train::RunEnd::Finished) show_sample(result, o.sample, console);
    if (o.json) print(train::to_json(result.summary));
    if (end == train::RunEnd::NonFinite)
      observe::Console::standard_error().print_line("quintet: " + result.message);
  }
  if (end == train::RunEnd::Interrupted) return kExitSignal + result.signal;
  return end == train::RunEnd::NonFinite ? kExitFailure : kExitGood;
}

}  // namespace

Verb add_train(CLI::App& app) {
  CLI::App* command = app.add_subcommand("train", "train the recipe's model");
  auto o = std::make_shared<TrainOptions>();
  o->recipe.add_to(*command, true, "how many steps (run.steps)");
  command->add_flag("--overwrite", o->overwrite, "replace the run that is in the run folder");
  command
      ->add_option("--trace", o->trace, "write what each rank does in these steps to trace.json (Perfetto)")
      ->type_name("steps=FIRST-LAST");
  command
      ->add_option("--sample", o->sample, "characters of text to show at the end (byte tokens, small models)")
      ->type_name("N")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  command->add_flag("--json", o->json, "the summary as JSON on standard output, the rest on standard error");
  command->footer(
      "Ranks are threads of this process, or processes under mpirun and srun (run.backend). Ctrl-C, SIGTERM "
      "or\n"
      "SIGUSR1 finish the step, save and exit with 128 + the signal's number; a second one stops at once.\n"
      "--set memory.recompute=fit --set memory.budget=6GiB keeps each rank to so much memory at the least "
      "extra "
      "time.");
  return {command, [o] { return train_action(*o); }};
}

}  // namespace quintet::cli
