// What `quintet plan` predicts: the assumptions that follow from its options, the layout that a search finds,
// and the report with its notes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/parse.h"
#include "plan/recipe_from_model.h"
#include "report/make_findings.h"

namespace quintet::tools {

struct PredictOptions {
  // The recipe, loaded with these --set arguments; empty: `request.model` on `cluster`.
  std::function<config::Recipe(const std::vector<std::string>& sets, const config::Use& use)> recipe;
  plan::RecipeRequest request;
  std::vector<std::string> sets;     // as given
  std::string dtype;                 // of --model's recipe; empty: its own
  std::string cluster;               // a phrase or a file; empty: this machine
  std::string stack, matmul;         // empty: the cluster's, the recipe's
  std::string documents;             // a number of tokens, or a file of them; empty: not packed
  double imbalance = 1, price = -1;  // price: negative: the cluster's
  plan::FileSystemRates storage;
  compiler::DisabledPasses disabled_passes = {};
  bool search = false;  // for the layout; those of `sets` that speak of it are held
  report::FindingsOptions findings;
  // Called when a search has ended, before what it found is planned.
  std::function<void(const report::Findings&, const plan::Assumptions&)> searched;
};

struct Prediction {
  std::optional<plan::Report> report;  // with its timeline; empty: the search found nothing that fits
  report::Findings findings;
};

// UserError for options that contradict the recipe.
Prediction predict(const PredictOptions& options);

}  // namespace quintet::tools
