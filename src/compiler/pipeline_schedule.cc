#include "compiler/pipeline_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "config/problem.h"
#include "config/validate.h"
#include "schedule/check.h"
#include "schedule/generators.h"
#include "schedule/text.h"

namespace quintet::compiler {
namespace {

void require_same_numbers(const schedule::Schedule& s, const std::string& file,
                          const config::Recipe& recipe) {
  std::vector<config::Problem> problems;
  const auto compare = [&](const char* key, int64_t asked, int64_t has, const char* what) {
    if (asked != has)
      problems.push_back(
          {.key = key,
           .rule = fmt::format("{}, but the schedule in '{}' is for {} {}", asked, file, has, what),
           .nearest = std::to_string(has),
           .name = "the schedule file matches the recipe"});
  };
  compare("parallel.pp", recipe.parallel.pp, s.stages, "stages");
  compare("parallel.chunks", recipe.parallel.chunks, s.chunks, "chunks per stage");
  compare("batch.accumulation", recipe.batch.accumulation, s.micro_batches, "micro-batches");
  if (!problems.empty()) throw config::RecipeError(recipe.name, std::move(problems));
}

// The global balance loss of a micro-batch depends on the loads of those before it, and "before" is the order
// in which a rank runs its forwards: only ascending order is that of one rank.
void require_order_of_loads(const schedule::Schedule& s, const std::string& file,
                            const config::Recipe& recipe) {
  const config::Moe& moe = recipe.model.moe;
  if (moe.experts == 0 || moe.balance_over(config::BalanceScope::Global) == 0) return;
  const bool first = moe.balance_scope == config::BalanceScope::Global;
  for (size_t rank = 0; rank < s.ranks.size(); ++rank) {
    std::vector<int> last(static_cast<size_t>(s.chunks), -1);
    for (const schedule::Action& action : s.ranks[rank]) {
      if (action.kind != schedule::Kind::F) continue;
      int& before = last[static_cast<size_t>(action.chunk)];
      if (action.micro < before)
        throw config::RecipeError(
            recipe.name, {{.key = "parallel.schedule",
                           .rule = fmt::format(
                               "the schedule in '{}' runs the forward of micro-batch {} after that of "
                               "micro-batch {} (stage {}), but with {} "
                               "loads accumulate in the order of forwards, which must be ascending",
                               file, action.micro, before, rank,
                               first ? "model.moe.balance_scope = \"global\"" : "model.moe.balance.global"),
                           .nearest = fmt::format("forwards in ascending order of micro-batches, or {}",
                                                  first ? "model.moe.balance_scope \"micro_batch\""
                                                        : "model.moe.balance.global 0"),
                           .name = "the schedule file matches the recipe"}});
      before = action.micro;
    }
  }
}

// Length of a shortened schedule, in multiples of the pipeline's ranks: steady state is reached.
constexpr int64_t kRounds = 5;

}  // namespace

config::Recipe with_few_micro_batches(const config::Recipe& recipe) {
  const config::Parallel& p = recipe.parallel;
  const int64_t all = recipe.batch.accumulation, round = p.micro_group > 0 ? p.micro_group : p.pp;
  const int64_t left = all % round;  // spread over the groups of an interleaved schedule, one each
  const int64_t few = std::max(kRounds, left) * round + left;
  config::Recipe shorter = recipe;
  if (all > 2 * few && !config::schedule_file(p.schedule)) shorter.batch.accumulation = few;
  return shorter;
}

schedule::Schedule pipeline_schedule(const config::Recipe& recipe) {
  const config::Parallel& p = recipe.parallel;
  QUINTET_CHECK(p.pp > 1, "a schedule requires parallel.pp > 1");
  if (const auto file = config::schedule_file(p.schedule)) {
    if (!base::file_exists(*file))
      throw config::RecipeError(recipe.name,
                                {{.key = "parallel.schedule",
                                  .rule = fmt::format("schedule file '{}' does not exist", *file),
                                  .name = "the schedule file matches the recipe"}});
    schedule::Schedule own = schedule::load(*file);
    require_same_numbers(own, *file, recipe);
    require_order_of_loads(own, *file, recipe);
    return own;
  }
  schedule::Schedule named =
      schedule::make_schedule(p.schedule, static_cast<int>(p.pp), static_cast<int>(p.chunks),
                              static_cast<int>(recipe.batch.accumulation), static_cast<int>(p.micro_group));
  schedule::check(named);
  return named;
}

}  // namespace quintet::compiler
