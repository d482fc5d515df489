#include "tools/recipe_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"
#include "config/codes.h"
#include "config/print.h"
#include "exec/executor.h"
#include "hardware/cluster.h"
#include "models/build.h"
#include "plan/layout_warnings.h"
#include "plan/text.h"
#include "program/allocate.h"
#include "program/ledger.h"
#include "train/loop.h"
#include "train/rank.h"

namespace quintet::tools {

using Json = nlohmann::ordered_json;

compiler::Compiled compile_rank(const config::Recipe& recipe, int64_t rank,
                                const compiler::DisabledPasses& disabled) {
  const int threads = train::kernel_threads(recipe, recipe.parallel.world());
  compiler::CompileOptions options;
  options.rank = base::RankId(static_cast<int32_t>(rank));
  options.evaluate = recipe.eval.every > 0;
  options.disabled = disabled;
  options.workspace_bytes = exec::workspace_of(train::device_of(recipe), threads);
  return compiler::compile(recipe, options);
}

std::vector<std::string> cluster_warnings(const config::Recipe& recipe, const std::string& cluster) {
  if (cluster.empty()) return {};
  const hardware::Cluster c = hardware::parse_cluster(cluster);
  if (c.world() != recipe.parallel.world())
    base::fail_user("--cluster {}: it has {} devices, but the recipe has {} ranks ({})", cluster, c.world(),
                    recipe.parallel.world(), plan::axes_text(recipe.parallel));
  return plan::layout_warnings(recipe.parallel, c);
}

std::string good_text(const config::Recipe& recipe, const compiler::Compiled& compiled,
                      const std::vector<std::string>& warnings) {
  std::string out = fmt::format("# good: {} rank{}, {} parameters, {} planned on rank 0\n",
                                recipe.parallel.world(), recipe.parallel.world() == 1 ? "" : "s",
                                base::thousands(models::parameter_count(compiled.logical)),
                                base::human_bytes(compiled.program.arena_bytes));
  for (const std::string& warning : warnings) out += "# warning: " + warning + "\n";
  return out + config::to_toml(recipe);
}

std::string good_json(const config::Recipe& recipe, const compiler::Compiled& compiled,
                      const std::vector<std::string>& warnings) {
  return base::json_text(Json{{"good", true},
                              {"world", recipe.parallel.world()},
                              {"parameters", models::parameter_count(compiled.logical)},
                              {"planned_peak_bytes", compiled.program.arena_bytes},
                              {"warnings", warnings},
                              {"recipe", Json::parse(config::to_json(recipe))}},
                         3) +
         "\n";
}

std::string problems_json(const config::RecipeError& e) {
  Json problems = Json::array();
  for (const config::Problem& p : e.problems())
    problems.push_back({{"code", config::code_of(p.name)},
                        {"key", p.key},
                        {"line", p.line},
                        {"column", p.column},
                        {"name", p.name},
                        {"rule", p.rule},
                        {"nearest", p.nearest}});
  Json json = {{"good", false}, {"problems", std::move(problems)}};
  if (e.left_out() > 0) json["left_out"] = e.left_out();
  return base::json_text(json, 2) + "\n";
}

std::string problems_json(const base::UserError& e) {
  Json problems = Json::array();
  problems.push_back({{"code", e.code()}, {"rule", e.what()}});
  return base::json_text(Json{{"good", false}, {"problems", std::move(problems)}}, 2) + "\n";
}

std::string program_json(const program::Program& p, const program::Expanded& expanded) {
  const program::Ledger ledger = program::make_ledger(p, expanded);
  const program::Peak peak = program::peak_of(p);
  Json memory = Json::object(), collectives = Json::array();
  for (int c = 0; c < program::kNumMemoryClasses; ++c)
    memory[std::string(to_string(static_cast<program::MemoryClass>(c)))] =
        peak.by_class[static_cast<size_t>(c)];
  for (const program::LedgerRow& row : ledger.rows)
    collectives.push_back({{"comm", p.comms[row.comm.index()].name()},
                           {"members", p.comms[row.comm.index()].members.size()},
                           {"kind", to_string(row.kind)},
                           {"count", row.collectives},
                           {"sent_bytes", row.sent_bytes}});
  return base::json_text(Json{{"rank", p.rank.value},
                              {"world", p.world},
                              {"instructions", expanded.issues.size()},
                              {"flops", ledger.flops},
                              {"planned_peak_bytes", p.arena_bytes},
                              {"memory", std::move(memory)},
                              {"collectives", std::move(collectives)}},
                         2) +
         "\n";
}

}  // namespace quintet::tools
