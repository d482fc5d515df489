#include "tools/recipe_report.h"

#include <fmt/format.h>

#include "base/text.h"
#include "config/print.h"
#include "exec/executor.h"
#include "models/build.h"
#include "observe/metrics.h"
#include "program/allocate.h"
#include "program/ledger.h"
#include "train/loop.h"
#include "train/rank.h"

namespace quintet::tools {

compiler::Compiled compile_rank(const config::Recipe& recipe, int64_t rank) {
  const int threads = train::kernel_threads(recipe, recipe.parallel.world());
  compiler::CompileOptions options;
  options.rank = base::RankId(static_cast<int32_t>(rank));
  options.evaluate = recipe.eval.every > 0;
  options.workspace_bytes = exec::workspace_of(train::device_of(recipe), threads);
  return compiler::compile(recipe, options);
}

std::string good_text(const config::Recipe& recipe, const compiler::Compiled& compiled) {
  return fmt::format("# good: {} rank{}, {} parameters, {} planned on rank 0\n{}", recipe.parallel.world(),
                     recipe.parallel.world() == 1 ? "" : "s",
                     base::thousands(models::parameter_count(compiled.logical)),
                     base::human_bytes(compiled.program.arena_bytes), config::to_toml(recipe));
}

std::string good_json(const config::Recipe& recipe, const compiler::Compiled& compiled) {
  return fmt::format(
      "{{\"good\": true, \"world\": {}, \"parameters\": {}, \"planned_peak_bytes\": {},\n\"recipe\": "
      "{}}}\n",
      recipe.parallel.world(), models::parameter_count(compiled.logical), compiled.program.arena_bytes,
      config::to_json(recipe));
}

std::string problems_json(const config::RecipeError& e) {
  std::string list;
  for (const config::Problem& p : e.problems())
    list += fmt::format("{}\n  {{\"key\": {}, \"line\": {}, \"name\": {}, \"rule\": {}, \"nearest\": {}}}",
                        list.empty() ? "" : ",", observe::json_string(p.key), p.line,
                        observe::json_string(p.name), observe::json_string(p.rule),
                        observe::json_string(p.nearest));
  return fmt::format("{{\"good\": false, \"problems\": [{}\n]}}\n", list);
}

std::string problems_json(const base::UserError& e) {
  return fmt::format("{{\"good\": false, \"problems\": [\n  {{\"rule\": {}}}\n]}}\n",
                     observe::json_string(e.what()));
}

std::string program_json(const program::Program& p, const program::Expanded& expanded) {
  const program::Ledger ledger = program::make_ledger(p, expanded);
  const program::Peak peak = program::peak_of(p);
  std::string memory, collectives;
  for (int c = 0; c < program::kNumMemoryClasses; ++c)
    memory += fmt::format("{}\"{}\": {}", c == 0 ? "" : ", ", to_string(static_cast<program::MemoryClass>(c)),
                          peak.by_class[static_cast<size_t>(c)]);
  for (const program::LedgerRow& row : ledger.rows)
    collectives += fmt::format(
        "{}\n    {{\"comm\": {}, \"members\": {}, \"kind\": \"{}\", \"count\": {}, \"sent_bytes\": {}}}",
        collectives.empty() ? "" : ",", observe::json_string(p.comms[row.comm.index()].name),
        p.comms[row.comm.index()].members.size(), to_string(row.kind), row.collectives,
        observe::json_number(row.sent_bytes));
  return fmt::format(
      "{{\n  \"rank\": {}, \"world\": {}, \"instructions\": {}, \"flops\": {},\n  \"planned_peak_bytes\": "
      "{},\n"
      "  \"memory\": {{{}}},\n  \"collectives\": [{}\n  ]\n}}\n",
      p.rank, p.world, expanded.issues.size(), observe::json_number(ledger.flops), p.arena_bytes, memory,
      collectives);
}

}  // namespace quintet::tools
