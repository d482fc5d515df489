#include "cli/number.h"
#include "cli/verbs.h"
#include "tools/replay.h"

namespace quintet::cli {
namespace {

struct ReplayOptions {
  std::string folder;
  int64_t step = 0;
  bool json = false;
};

}  // namespace

Verb add_replay(CLI::App& app) {
  CLI::App* command = app.add_subcommand("replay", "run a past step of a run again and compare its numbers");
  auto o = std::make_shared<ReplayOptions>();
  command->add_option("RUN_FOLDER", o->folder, "the run folder")->required();
  command->add_option("--step", o->step, "the step, 1-based")
      ->type_name("N")
      ->required()
      ->check(integer_in(1));
  command->add_flag("--json", o->json, "print JSON");
  command->footer(
      "Starts from the newest checkpoint before the step. Exit code 1 if a number differs from the recorded "
      "one in any bit.");
  return {command, [o] {
            const tools::Replay replay = tools::replay(o->folder, o->step);
            o->json ? print(to_json(replay)) : print_report(to_text(replay));
            return replay.is_equal() ? kExitGood : kExitFailure;
          }};
}

}  // namespace quintet::cli
