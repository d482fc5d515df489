#include "cli/number.h"
#include "cli/verbs.h"
#include "tools/checkpoints.h"

namespace quintet::cli {
namespace {

struct CheckpointOptions {
  std::string path;
  int64_t keep = 0, keep_every = 0;
  bool json = false, tensors = false, dry_run = false;
};

}  // namespace

Verb add_checkpoint(CLI::App& app) {
  CLI::App* command = app.add_subcommand("checkpoint", "list, show, verify and prune checkpoints");
  auto o = std::make_shared<CheckpointOptions>();
  command->require_subcommand(1);
  const auto add = [&](const char* name, const char* help, const char* what) {
    CLI::App* verb = command->add_subcommand(name, help);
    verb->add_option("PATH", o->path, what)->required();
    return verb;
  };
  const char* const folder = "a run folder, or its folder of checkpoints";
  const char* const one = "a checkpoint; of a run folder, the newest";
  CLI::App* ls = add("ls", "list the checkpoints of a run", folder);
  CLI::App* show = add("show", "describe a checkpoint: step, layout, state, tensors", one);
  CLI::App* verify = add("verify", "read a checkpoint and compare every checksum", one);
  CLI::App* prune = add("prune", "remove checkpoints, and those that were set aside", folder);
  for (CLI::App* verb : {ls, show, verify}) verb->add_flag("--json", o->json, "print JSON");
  show->add_flag("--tensors", o->tensors, "also list every tensor");
  prune->add_option("--keep", o->keep, "number of newest checkpoints that stay")
      ->type_name("N")
      ->required()
      ->check(integer_in(1));
  prune->add_option("--keep-every", o->keep_every, "also keep the first checkpoint of every STEPS steps")
      ->type_name("STEPS")
      ->check(integer_in(1));
  prune->add_flag("--dry-run", o->dry_run, "only list what would be removed");
  command->footer("docs/formats/checkpoint.md describes the format. Verify exits with 2 for a damaged one.");
  return {command, [=] {
            const auto write = o->json ? print : print_report;
            if (ls->parsed()) write(tools::list_checkpoints(o->path, o->json));
            if (show->parsed()) write(tools::show_checkpoint(o->path, o->tensors, o->json));
            if (verify->parsed()) write(tools::verify_checkpoint(o->path, o->json));
            if (prune->parsed())
              print_report(tools::prune_checkpoints(o->path, {.keep = o->keep, .keep_every = o->keep_every},
                                                    o->dry_run));
            return kExitGood;
          }};
}

}  // namespace quintet::cli
