#include "tools/predict.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "search/layout_space.h"
#include "tools/bench_step.h"
#include "tools/plan_assumptions.h"

namespace quintet::tools {
namespace {

std::optional<hardware::Arithmetic> arithmetic(const std::string& word) {
  if (word.empty()) return std::nullopt;
  for (int i = 0; i < hardware::kNumArithmetics; ++i)
    if (to_string(static_cast<hardware::Arithmetic>(i)) == word) return static_cast<hardware::Arithmetic>(i);
  base::fail_user("--matmul {}: must be one of f64, f32, tf32, f16, bf16, fp8, fp4", word);
}

std::vector<int64_t> document_lengths(const std::string& given) {
  const bool number = given[0] != 'e' && given.find_first_not_of("+-.0123456789e") == std::string::npos;
  return parse_document_lengths(number ? given : base::read_file(given), number ? "--documents" : given);
}

// A recipe of fewer ranks than the cluster has devices runs on a part of it.
void use_part_of_cluster(hardware::Cluster& cluster, const config::Recipe& recipe,
                         std::vector<std::string>& notes) {
  const int64_t world = recipe.parallel.world(), all = cluster.world();
  const bool whole_nodes = world % cluster.per_node == 0;
  if (world >= all || (world > cluster.per_node && !whole_nodes)) return;
  notes.push_back(fmt::format(
      "the recipe uses {} of the cluster's {} devices; --search finds a layout for all", world, all));
  cluster.nodes = whole_nodes ? static_cast<int>(world / cluster.per_node) : 1;
  if (!whole_nodes) cluster.per_node = static_cast<int>(world);
  cluster.domain = std::min<int>(cluster.domain, static_cast<int>(world));
}

// The recipe, and the cluster that it is planned on.
plan::FilledRecipe fill_recipe(const PredictOptions& o, plan::Assumptions& assumptions,
                               std::vector<std::string>& notes) {
  if (!o.cluster.empty()) assumptions.cluster = hardware::parse_cluster(o.cluster);
  // The layout keys that a search holds fixed need not form a complete layout.
  std::vector<std::string> sets = o.sets;
  if (o.search) std::erase_if(sets, search::sets_layout);
  if (!o.recipe) {
    plan::RecipeRequest request = o.request;
    request.sets = sets;
    request.search = o.search;
    if (!o.dtype.empty()) request.sets.push_back("precision.compute=" + o.dtype);
    return plan::recipe_from_model(request, assumptions.cluster);
  }
  plan::FilledRecipe filled;
  filled.recipe = o.recipe(sets, {.purpose = o.search ? config::Purpose::Search : config::Purpose::Run,
                                  .ranks = o.cluster.empty() ? 0 : assumptions.cluster.world()});
  if (o.cluster.empty())
    assumptions.cluster = cluster_here(filled.recipe, notes);
  else if (!o.search)
    use_part_of_cluster(assumptions.cluster, filled.recipe, notes);
  return filled;
}

void assume(const PredictOptions& o, const config::Recipe& recipe, plan::Assumptions& assumptions) {
  if (o.price >= 0) {
    assumptions.cluster.price_per_hour = o.price;
    assumptions.cluster.price_source = "--price";
  }
  assume_software(assumptions, o.stack, recipe);
  assumptions.matmul = arithmetic(o.matmul);
  assumptions.disabled_passes = o.disabled_passes;
  if (o.imbalance != 1 && recipe.model.moe.experts == 0)
    base::fail_user("--imbalance {} requires a model with experts, and this model has none", o.imbalance);
  assumptions.imbalance = o.imbalance;
  assumptions.storage = o.storage;
  if (o.documents.empty()) return;
  if (!recipe.data.pack) base::fail_user("--documents needs data.pack = true, the recipe has false");
  assumptions.visible_keys = mean_visible_keys(document_lengths(o.documents), recipe);
}

}  // namespace

Prediction predict(const PredictOptions& o) {
  plan::Assumptions assumptions;
  Prediction result;
  plan::FilledRecipe filled = fill_recipe(o, assumptions, result.findings.notes);
  assume(o, filled.recipe, assumptions);
  if (o.search) {
    std::vector<std::string> held = o.sets;
    if (o.request.micro_batch > 0) held.push_back(fmt::format("batch.micro={}", o.request.micro_batch));
    const std::optional<config::Recipe> found =
        report::search_layout(o.findings, {filled.recipe, held, !o.recipe}, assumptions, result.findings);
    if (o.searched) o.searched(result.findings, assumptions);
    if (!found) return result;
    filled.recipe = *found;
  }
  assumptions.timeline = true;
  plan::Report& report = result.report.emplace(plan::make_plan(filled.recipe, assumptions));
  report.notes.insert(report.notes.begin(), result.findings.notes.begin(), result.findings.notes.end());
  // Keys that a search chooses were not filled in.
  const auto chosen = [&](const std::string& key) {
    return o.search && (key.starts_with("parallel.") || key.starts_with("batch.micro"));
  };
  for (const std::string& key : filled.filled)
    if (!chosen(key)) report.notes.push_back("filled in " + key);
  report::add_findings(o.findings, report, result.findings);
  return result;
}

}  // namespace quintet::tools
