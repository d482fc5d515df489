#include "base/error.h"
#include "cli/number.h"
#include "cli/verbs.h"
#include "compiler/compile.h"
#include "config/names.h"
#include "hardware/cluster.h"
#include "observe/console.h"
#include "program/text.h"
#include "tools/bisect.h"
#include "tools/recipe_report.h"
#include "tools/verify.h"
#include "train/run_data.h"

namespace quintet::cli {
namespace {

struct CheckOptions {
  RecipeOptions recipe;
  std::string cluster;
  bool json = false;
};

int check_action(const CheckOptions& o) {
  const config::Recipe recipe =
      o.recipe.load(true, {.ranks = o.cluster.empty() ? 0 : hardware::parse_cluster(o.cluster).world()});
  train::require_data(recipe);
  train::require_loadable_if_small(recipe);
  const std::vector<std::string> warnings = tools::cluster_warnings(recipe, o.cluster);
  const compiler::Compiled compiled = tools::compile_rank(recipe, 0);
  print(o.json ? tools::good_json(recipe, compiled, warnings) : tools::good_text(recipe, compiled, warnings));
  return kExitGood;
}

struct ProgramOptions {
  RecipeOptions recipe;
  int64_t rank = 0;
  bool expanded = false, full = false, evaluate = false, json = false;
};

int program_action(const ProgramOptions& o) {
  const config::Recipe recipe = o.recipe.load();
  if (o.rank < 0 || o.rank >= recipe.parallel.world())
    base::fail_user("--rank {}: the recipe has {} rank{}; allowed: 0 to {}", o.rank, recipe.parallel.world(),
                    recipe.parallel.world() == 1 ? "" : "s", recipe.parallel.world() - 1);
  if (o.evaluate && recipe.eval.every == 0)
    base::fail_user("--evaluate needs a recipe with evaluation, but eval.every is 0");
  const compiler::Compiled c = tools::compile_rank(recipe, o.rank, o.recipe.disabled_passes());
  const program::Expanded& expanded = o.evaluate ? c.evaluate : c.step;
  if (o.json) {
    print(tools::program_json(c.program, expanded));
    return kExitGood;
  }
  using Form = program::TextOptions::Form;
  print_report(program::to_text(c.program, expanded,
                                {.form = o.expanded ? Form::Expanded : Form::Folded, .full = o.full}));
  return kExitGood;
}

struct VerifyVerbOptions {
  RecipeOptions recipe;
  std::string reference, from;
  bool json = false, synthetic = false, bisect = false;
};

int verify_action(const VerifyVerbOptions& o) {
  const config::Recipe recipe = o.recipe.load(false);
  tools::VerifyOptions options;
  if (o.recipe.steps > 0) options.steps = o.recipe.steps;
  options.synthetic = o.synthetic;
  options.from = o.from;
  options.disabled_passes = o.recipe.disabled_passes();
  if (!o.reference.empty()) options.reference = config::value_of<config::DeviceKind>(o.reference);
  options.log = [](const std::string& line) { observe::Console::standard_error().print_line(line); };
  if (o.bisect) {
    if (o.recipe.steps > 0)
      base::fail_user("--bisect compares one step; leave out --steps {}", o.recipe.steps);
    if (!o.reference.empty())
      base::fail_user("--bisect runs both on the recipe's device; leave out --reference {}", o.reference);
    const tools::Bisection found = tools::bisect(recipe, options);
    o.json ? print(tools::to_json(found)) : print_report(tools::to_text(found));
    return found.pass() ? kExitGood : kExitFailure;
  }
  const tools::VerifyResult result = tools::verify(recipe, options);
  if (!result.is_first) return kExitGood;
  o.json ? print(tools::to_json(result)) : print_report(tools::to_table(result));
  return result.pass() ? kExitGood : kExitFailure;
}

}  // namespace

Verb add_check(CLI::App& app) {
  CLI::App* command = app.add_subcommand("check", "print the resolved recipe, or all problems found in it");
  auto o = std::make_shared<CheckOptions>();
  o->recipe.add_to(*command, true, "number of steps (run.steps)");
  add_cluster_option(*command, o->cluster);
  command->add_flag("--json", o->json, "print JSON");
  command->footer(
      "Builds the model and plans the memory of rank 0, but does not read the data, which must exist.");
  return {command, [o] { return check_action(*o); }};
}

Verb add_program(CLI::App& app) {
  CLI::App* command = app.add_subcommand("program", "print the program of one rank");
  auto o = std::make_shared<ProgramOptions>();
  o->recipe.add_to(*command, true, "number of steps (run.steps)");
  o->recipe.add_passes_to(*command);
  command->add_option("--rank", o->rank, "the rank")
      ->type_name("R")
      ->capture_default_str()
      ->check(integer_in(0, int64_t{1} << 20));
  auto* expanded =
      command->add_flag("--expanded", o->expanded, "print every issued instruction with its waits");
  auto* full = command->add_flag("--full", o->full, "print everything, in the form that the parser reads")
                   ->excludes(expanded);
  command->add_flag("--json", o->json, "print counts of instructions, memory, FLOPs and collectives as JSON")
      ->excludes(expanded)
      ->excludes(full);
  command->add_flag("--evaluate", o->evaluate, "print the evaluation program instead of the training step");
  return {command, [o] { return program_action(*o); }};
}

Verb add_verify(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "verify", "compare the recipe's layout with a single rank: loss, every gradient, weights");
  auto o = std::make_shared<VerifyVerbOptions>();
  o->recipe.add_to(*command, true, "number of steps to compare");
  o->recipe.add_passes_to(*command);
  command->add_option("--reference", o->reference, "device of the single rank (default: the recipe's)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  command
      ->add_option(
          "--from", o->from,
          "start both with the weights of this checkpoint, or of a run's newest one, instead of new ones")
      ->type_name("CHECKPOINT");
  command->add_flag("--synthetic", o->synthetic, "use random tokens instead of the recipe's data");
  command->add_flag("--bisect", o->bisect,
                    "compare every result of one step, and name the first op that departs from one rank");
  command->add_flag("--json", o->json, "print JSON");
  command->footer(
      "Exit code 1 if any value differs by more than rounding explains; the first such tensor is named.\n"
      "The single rank always runs all passes.");
  return {command, [o] { return verify_action(*o); }};
}

}  // namespace quintet::cli
