// The model that a recipe starts from: a preset or a Hugging Face folder, before its own keys are read.
#pragma once

#include <optional>

#include "base/file.h"
#include "config/leaves.h"
#include "config/recipe.h"
#include "config/report.h"

namespace quintet::config {

// The model of model.preset, without the values that given keys make stale.
void start_from_preset(Recipe& recipe, const Leaves& leaves, Report& report);

// The model of a Hugging Face folder, and its tokenizer. A recipe that has all sizes, as the resolved one of
// a run, is complete without the folder. `folder` is the recipe's own.
void start_from_hf(Recipe& recipe, const Leaves& leaves, const std::optional<base::Path>& folder,
                   Report& report);

// Keys given beside model.hf must agree with it. `before` is the recipe as model.hf sets it.
void check_agreement_with_hf(const Recipe& before, const Recipe& recipe, const Leaves& leaves,
                             Report& report);

// With experts in every block, a preset's width of dense blocks is unused.
void drop_dense_width(Recipe& recipe, const Leaves& leaves);

void check_family_of_preset(const Recipe& recipe, Report& report);

}  // namespace quintet::config
