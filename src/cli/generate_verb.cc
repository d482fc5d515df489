#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "config/names.h"
#include "observe/console.h"
#include "tools/generate.h"
#include "train/loop.h"

namespace quintet::cli {
namespace {

struct GenerateVerbOptions {
  std::string folder;
  tools::GenerateOptions generate;
  std::string device;
  int64_t step = -1;  // -1: the newest
  bool json = false;
};

int generate_action(const GenerateVerbOptions& o) {
  tools::GenerateOptions options = o.generate;
  options.threads = train::kernel_threads({}, 1);
  if (!o.device.empty()) options.device = config::value_of<config::DeviceKind>(o.device);
  options.log = [](const std::string& line) { observe::Console::standard_error().print_line(line); };
  if (o.step >= 0) options.step = o.step;
  bool begun = false;
  // A file or pipe gets the bytes as they are.
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  base::PrintableStream safe;
  if (!o.json)
    options.on_text = [&](std::string_view piece) {
      if (!begun) print(terminal ? safe.add(options.prompt) : options.prompt);
      begun = true;
      print(terminal ? safe.add(piece) : std::string(piece));
    };
  const std::string text = tools::generate(o.folder, options);
  if (o.json)
    print(base::json_text(nlohmann::ordered_json{{"prompt", options.prompt}, {"text", text}}) + "\n");
  else
    print(safe.finish() + "\n");
  return kExitGood;
}

}  // namespace

Verb add_generate(CLI::App& app) {
  CLI::App* command = app.add_subcommand("generate", "generate text from a run or a checkpoint");
  auto o = std::make_shared<GenerateVerbOptions>();
  command
      ->add_option("RUN_FOLDER", o->folder,
                   "a run folder, of which the newest checkpoint is taken, or a checkpoint")
      ->required();
  command->add_option("--step", o->step, "the checkpoint of this step instead of the newest")
      ->type_name("N")
      ->check(integer_in(0, int64_t{1} << 53));
  command->add_flag("--ema", o->generate.averages, "use the averages of the weights (optimizer.ema)");
  command->add_option("--prompt", o->generate.prompt, "text to continue")
      ->type_name("TEXT")
      ->capture_default_str();
  command->add_option("--tokens", o->generate.tokens, "number of tokens to generate")
      ->type_name("N")
      ->capture_default_str()
      ->check(integer_in(1, 1'000'000));
  command
      ->add_option("--temperature", o->generate.temperature,
                   "sampling temperature; 0 selects the most likely token")
      ->type_name("T")
      ->capture_default_str()
      ->check(number_in(0, 1e6));
  command->add_option("--seed", o->generate.seed, "seed; the same seed gives the same text")
      ->type_name("S")
      ->capture_default_str()
      ->check(integer_in(0, int64_t{1} << 53));
  command
      ->add_option("--device", o->device,
                   "device to run on (default: that of the run if available, otherwise the CPU)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_flag("--json", o->json, "print prompt and text as JSON");
  return {command, [o] { return generate_action(*o); }};
}

}  // namespace quintet::cli
