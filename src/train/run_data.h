// The data of a run: shuffled training batches, and validation batches in stored order.
#pragma once

#include <optional>
#include <string>

#include "config/recipe.h"
#include "data/batch.h"

namespace quintet::train {

struct RunData {
  data::Batches train;
  // One micro-batch per data-parallel rank at a time; present when the recipe holds out validation data.
  std::optional<data::Batches> validation;
  std::string reading;  // files read and skipped; empty for token files and given corpora

  // Batches of `validation` that one evaluation reads: eval.batches batches of batch.global sequences, or all
  // of them. The same sequences in every layout.
  int64_t evaluation_batches(const config::Recipe& recipe) const;
};

// Loads recipe.data. UserError when the path is not set, missing, empty, too short, damaged, exceeds the
// model's vocabulary, or has no label to learn from.
RunData load_data(const config::Recipe& recipe);
// The same from a given corpus; ignores recipe.data.path.
RunData make_data(const config::Recipe& recipe, const data::Corpus& corpus);
// UserError unless every entry of recipe.data.path exists. Reads nothing.
void require_data(const config::Recipe& recipe);

}  // namespace quintet::train
