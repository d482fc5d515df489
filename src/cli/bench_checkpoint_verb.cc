#include "cli/bench_step_verb.h"
#include "cli/number.h"
#include "tools/bench_checkpoint.h"

namespace quintet::cli {
namespace {

struct BenchCheckpointOptions {
  RecipeOptions recipe;
  std::string folder = "checkpoint-bench";
  tools::CheckpointBenchOptions bench;
  bool json = false;
};

int bench_checkpoint_action(const BenchCheckpointOptions& o) {
  tools::CheckpointBenchOptions options = o.bench;
  options.folder = o.folder;
  const tools::CheckpointBench bench = tools::bench_checkpoint(o.recipe.load(false), options);
  o.json ? print(tools::to_json(bench)) : print_report(tools::to_table(bench));
  return kExitGood;
}

}  // namespace

Verb add_bench_checkpoint(CLI::App& bench) {
  CLI::App* command =
      bench.add_subcommand("checkpoint", "measure saving and loading of a recipe's state, without training");
  auto o = std::make_shared<BenchCheckpointOptions>();
  o->recipe.add_to(*command, true, "");
  CLI::Option* folder =
      command->add_option("--dir", o->folder, "folder to save in; what was saved is removed")
          ->type_name("FOLDER")
          ->capture_default_str();
  command->add_option("--rounds", o->bench.rounds, "number of saves and loads")
      ->type_name("N")
      ->capture_default_str()
      ->check(integer_in(1, 1000));
  command->add_flag("--copy-only", o->bench.copy_only, "only the copy into host memory: write nothing")
      ->excludes(folder);
  command->add_flag("--json", o->json, "print every round as JSON");
  command->footer(
      "stop: training stands still; memcpy: all ranks copy as many bytes of host memory and do nothing else; "
      "copy: the state is in host memory; save: the checkpoint is complete on "
      "disk, flushed; load: read back, verified, after the system has dropped its copy of the files; "
      "cached: the same when it has one.");
  return {command, [o] { return bench_checkpoint_action(*o); }};
}

}  // namespace quintet::cli
