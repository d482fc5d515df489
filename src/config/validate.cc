#include "config/validate.h"

#include "config/axis_order.h"
#include "config/resolve.h"
#include "config/rule.h"

namespace quintet::config {
namespace {

std::vector<Problem> resolve_and_check(Recipe& recipe) {
  Report report;
  fill_in_rest(recipe.parallel, 0, report);
  fill_in(recipe, report);
  check_limits(
      recipe, [](const std::string&) { return false; }, Keys::All, report);
  check_rules(recipe, report);
  return std::move(report.problems());
}

// Suggestions for `world` ranks: start as many ranks as the layout has, or change an axis so that it fits.
std::string nearest_world(const Recipe& r, int64_t world) {
  const Parallel& p = r.parallel;
  std::string text = fmt::format("{} ranks", p.world());
  const auto try_axis = [&](const char* key, int64_t Parallel::*axis) {
    const int64_t others = p.world() / (p.*axis);
    if (world < 1 || world % others != 0 || world / others == p.*axis) return;
    Recipe changed = r;
    changed.parallel.*axis = world / others;
    changed.batch.accumulation = 0;  // follows the new dp
    if (!resolve_and_check(changed).empty()) return;
    text += fmt::format(", or --set {}={}", key, world / others);
    if (changed.batch.accumulation != r.batch.accumulation)
      text += fmt::format(" --set batch.accumulation={}", changed.batch.accumulation);
  };
  try_axis("parallel.dp_shard", &Parallel::dp_shard);
  try_axis("parallel.dp_replicate", &Parallel::dp_replicate);
  try_axis("parallel.tp", &Parallel::tp);
  try_axis("parallel.cp", &Parallel::cp);
  return text;
}

}  // namespace

Recipe resolve(Recipe recipe) {
  std::vector<Problem> problems = resolve_and_check(recipe);
  if (!problems.empty()) throw RecipeError("recipe " + recipe.name, std::move(problems));
  return recipe;
}

std::vector<Problem> problems_of(const Recipe& recipe) {
  Recipe copy = recipe;
  return resolve_and_check(copy);
}

void check_world(const Recipe& recipe, int64_t world) {
  const Parallel& p = recipe.parallel;
  if (world == p.world()) return;
  Problem problem;
  problem.key = "parallel";
  problem.name = "the layout matches the number of processes";
  problem.rule = fmt::format("{} needs {} ranks, but {} were started", layout_text(p), p.world(), world);
  problem.nearest = nearest_world(recipe, world);
  throw RecipeError("recipe " + recipe.name, {problem});
}

}  // namespace quintet::config
