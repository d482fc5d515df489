#include <fmt/format.h>

#include "cli/verbs.h"
#include "config/names.h"
#include "config/parse.h"
#include "observe/metrics.h"

namespace quintet::cli {

void RecipeOptions::add_to(CLI::App& command, bool with_dtype, const std::string& steps_help) {
  command.add_option("RECIPE", path, "the recipe, a TOML file")->required();
  command.add_option("--set", sets, "set a key, e.g. --set parallel.tp=4; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command.add_option("--steps", steps, steps_help)
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  command.add_option("--run-dir", run_dir, "the run folder (run.dir)")->type_name("FOLDER");
  if (with_dtype)
    command
        .add_option(
            "--dtype", dtype,
            "type of computing; master weights, moments, gradients and reduction follow it, but for what "
            "--set says")
        ->check(CLI::IsMember({"f64", "f32", "bf16", "f16"}));
}

config::Recipe RecipeOptions::load(bool steps_is_run) const {
  std::vector<std::string> all;
  if (!dtype.empty()) {  // first: what --set says of a key holds
    const auto p = config::Precision::of(*config::value_of<base::DType>(dtype));
    const std::pair<const char*, std::string_view> keys[] = {{"compute", config::name_of(p.compute)},
                                                             {"master", config::name_of(p.master)},
                                                             {"moments", config::name_of(p.moments)},
                                                             {"gradients", config::name_of(p.gradients)},
                                                             {"reduce", config::name_of(p.reduce)}};
    for (const auto& [key, value] : keys) all.push_back(fmt::format("precision.{}={}", key, value));
    if (p.compute != base::DType::F32) all.push_back("precision.tf32=false");  // which is of f32
  }
  all.insert(all.end(), sets.begin(), sets.end());
  if (steps > 0 && steps_is_run) all.push_back("run.steps=" + std::to_string(steps));
  if (!run_dir.empty()) all.push_back("run.dir=" + observe::json_string(run_dir));
  return config::load(path, all);
}

}  // namespace quintet::cli
