#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "base/error_codes.h"
#include "base/output_path.h"
#include "base/printable.h"
#include "base/text.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "config/parse.h"
#include "config/place_paths.h"
#include "config/presets.h"
#include "observe/console.h"
#include "tools/starter_recipe.h"
#include "train/run_data.h"

namespace quintet::cli {
namespace {

struct InitOptions {
  std::string file = "recipe.toml";
  tools::RecipeWishes wishes;
  bool yes = false, overwrite = false;
};

// What this build can use.
std::string default_device() { return *QUINTET_GPU == '\0' ? "cpu" : "cuda"; }

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const config::Model& m : config::presets()) names.push_back(m.preset);
  return names;
}

// Asks until the answer is accepted; an empty answer takes the proposal. `refusal` returns why an answer is
// not accepted, or nothing.
std::string ask(const std::string& question, const std::string& proposal,
                const std::function<std::string(const std::string&)>& refusal) {
  observe::Console& console = observe::Console::standard_error();
  while (true) {
    console.print_line(proposal.empty() ? question : fmt::format("{} [{}]", question, proposal));
    std::string answer;
    if (!std::getline(std::cin, answer)) base::fail_user("the questions of 'quintet init' were not answered");
    while (!answer.empty() && std::isspace(static_cast<unsigned char>(answer.back()))) answer.pop_back();
    if (answer.empty()) answer = proposal;
    const std::string why = answer.empty() ? "an answer is needed" : refusal(answer);
    if (why.empty()) return answer;
    console.print_line("  " + why);
  }
}

int64_t ask_number(const std::string& question, int64_t proposal, int64_t max) {
  const CLI::Validator range = integer_in(1, max);
  return std::stoll(ask(question, std::to_string(proposal), [&](const std::string& answer) {
    std::string copy = answer;
    return range(copy);
  }));
}

std::string missing_data(const std::string& path) {
  config::Recipe recipe;
  recipe.data.path = {config::with_home(path)};
  try {
    train::require_data(recipe);
    return {};
  } catch (const base::UserError& e) {
    return base::without_code(e.what());
  }
}

std::string preset_refusal(const std::string& answer) {
  if (config::find_preset(answer) != nullptr) return "";
  if (answer == "?") return fmt::format("{}", fmt::join(preset_names(), ", "));
  const std::string near = config::likely_preset(answer);
  return fmt::format("there is no preset '{}'{}", base::printable(answer),
                     near.empty() ? "" : fmt::format(", did you mean '{}'?", near));
}

// Asks for what no option gave.
void ask_all(tools::RecipeWishes& w) {
  if (w.data.empty())
    w.data = ask("Which text to train on? A file, a folder or a token file", "", missing_data);
  if (w.model.empty())
    w.model = ask("Which model? A preset, e.g. qwen3-0.6b or llama3-8b; ? lists all", tools::kDefaultPreset,
                  preset_refusal);
  if (w.device.empty())
    w.device = ask("Run on cpu or cuda (NVIDIA GPUs)?", default_device(), [](const std::string& answer) {
      return answer == "cpu" || answer == "cuda" ? "" : "cpu or cuda";
    });
  if (w.ranks == 0) w.ranks = ask_number("On how many ranks (GPUs, or threads of this process)?", 1, 65536);
  if (w.steps == 0) w.steps = ask_number("How many steps?", tools::kDefaultSteps, int64_t{1} << 30);
}

int init_action(InitOptions o) {
  base::require_new_file("FILE", o.file, o.overwrite);
  const bool asks = !o.yes && ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  if (asks) ask_all(o.wishes);
  if (o.wishes.data.empty())
    base::fail_user("--data is needed: a text file, a folder of text files, or a token file to train on");
  o.wishes.data = config::with_home(o.wishes.data);
  if (const std::string why = missing_data(o.wishes.data); !why.empty()) base::fail_user("--data: {}", why);
  const base::Path folder = std::filesystem::absolute(o.file).lexically_normal().parent_path();
  if (o.wishes.device.empty()) o.wishes.device = default_device();
  const std::string text = tools::starter_recipe(o.wishes, folder);
  config::parse(text, {}, o.file);  // throws when the wishes do not fit each other
  base::write_file_atomically(o.file, text);
  print(
      fmt::format("wrote {0}\n  quintet check {0}            resolve it and print every key\n"
                  "  quintet train {0} --dry-run  prepare the run without training\n"
                  "  quintet train {0}            train\n",
                  o.file));
  return kExitGood;
}

}  // namespace

Verb add_init(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("init", "write a commented recipe: asks a few questions, or takes options");
  auto o = std::make_shared<InitOptions>();
  command->add_option("FILE", o->file, "the recipe to write")->capture_default_str();
  command->add_option("--data", o->wishes.data, "text file, folder of text files, or token file to train on")
      ->type_name("PATH");
  command
      ->add_option("--model", o->wishes.model,
                   fmt::format("model preset: {}", fmt::join(preset_names(), ", ")))
      ->type_name("PRESET");
  command->add_option("--name", o->wishes.name, "name of the run; default: that of the file")
      ->type_name("NAME");
  command->add_option("--device", o->wishes.device, "cpu, or cuda for NVIDIA GPUs")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--ranks", o->wishes.ranks, "number of GPUs, or of threads on the CPU (1)")
      ->type_name("N")
      ->check(integer_in(1, 65536));
  command->add_option("--seq-len", o->wishes.seq_len, "tokens per sequence")
      ->type_name("N")
      ->check(integer_in(1, int64_t{1} << 30));
  command->add_option("--batch", o->wishes.batch, "sequences per step")
      ->type_name("N")
      ->check(integer_in(1, int64_t{1} << 30));
  command->add_option("--steps", o->wishes.steps, fmt::format("number of steps ({})", tools::kDefaultSteps))
      ->type_name("N")
      ->check(integer_in(1, int64_t{1} << 30));
  command->add_flag("-y,--yes", o->yes, "ask nothing");
  command->add_flag("--overwrite", o->overwrite, "replace an existing file");
  command->footer("Questions are asked on a terminal only, and only for what no option gives.");
  return {command, [o] {
            if (o->wishes.name.empty()) o->wishes.name = base::Path(o->file).stem().string();
            return init_action(*o);
          }};
}

}  // namespace quintet::cli
