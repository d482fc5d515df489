#include <fmt/format.h>

#include "cli/number.h"
#include "cli/verbs.h"
#include "config/environment.h"
#include "config/names.h"
#include "config/parse.h"
#include "config/precision_overrides.h"
#include "observe/console.h"
#include "observe/metrics.h"

namespace quintet::cli {

void RecipeOptions::add_to(CLI::App& command, bool with_dtype, const std::string& steps_help) {
  command.add_option("RECIPE", path, "recipe file (TOML)")->required();
  command.add_option("--set", sets, "override a key, e.g. --set parallel.tp=4; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  if (!steps_help.empty())
    command.add_option("--steps", steps, steps_help)->type_name("N")->check(integer_in(1, int64_t{1} << 30));
  if (with_dtype)
    command
        .add_option(
            "--dtype", dtype,
            "compute type; master weights, moments, gradients and reduction follow it unless set with --set")
        ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
}

void add_cluster_option(CLI::App& command, std::string& cluster) {
  command
      .add_option("--cluster", cluster,
                  "warn where the layout does not suit this cluster: a phrase (\"2x8 h100\") or a file of "
                  "doctor --probe")
      ->type_name("CLUSTER");
}

CLI::Option* RecipeOptions::add_passes_to(CLI::App& command) {
  const auto all = compiler::optional_passes();
  return command
      .add_option(
          "--disable-pass", disabled,
          fmt::format("leave out an optional pass, to find the one behind a wrong number: {}; repeatable",
                      to_string(compiler::DisabledPasses(all.begin(), all.end()))))
      ->type_name("NAME")
      ->allow_extra_args(false);
}

compiler::DisabledPasses RecipeOptions::disabled_passes() const {
  compiler::DisabledPasses passes;
  for (const std::string& name : disabled) passes.insert(compiler::parse_optional_pass(name));
  return passes;
}

config::Recipe RecipeOptions::load(bool steps_is_run, config::Use use) const {
  std::vector<std::string> all;
  if (!dtype.empty())  // first, so that --set takes precedence
    all = config::precision_overrides(*config::value_of<base::DType>(dtype));
  all.insert(all.end(), sets.begin(), sets.end());
  if (steps > 0 && steps_is_run) all.push_back("run.steps=" + std::to_string(steps));
  if (!run_dir.empty()) all.push_back("run.dir=" + observe::json_string(run_dir));
  std::vector<std::string> notes;
  const auto launch = config::detect_launch();
  if (use.ranks == 0 && launch) use.ranks = launch->world;
  const config::Recipe recipe = config::load(path, all, &notes, use);
  if (!launch || launch->rank == 0)
    for (const std::string& note : notes)
      observe::Console::standard_error().print_line("note: " + note, {.style = observe::Style::Dim});
  return recipe;
}

}  // namespace quintet::cli
