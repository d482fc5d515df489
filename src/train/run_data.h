// The data of a run: training batches in shuffled order, validation batches in stored order.
#pragma once

#include <optional>

#include "config/recipe.h"
#include "data/batch.h"
#include "data/tokenizer.h"

namespace quintet::train {

struct RunData {
  data::Batches train;
  std::optional<data::Batches>
      validation;  // one micro-batch per data rank at a time; present when the recipe holds data back

  // Batches of `validation` that one evaluation reads: eval.batches batches of batch.global sequences, or all
  // there are. The sequences are the same in every layout.
  int64_t evaluation_batches(const config::Recipe& recipe) const;
};

// Reads what recipe.data names. Nothing given, missing, empty, too short or beyond the model's vocabulary:
// UserError.
RunData load_data(const config::Recipe& recipe);
// The same from a corpus at hand; recipe.data.path is not looked at.
RunData make_data(const config::Recipe& recipe, const data::Corpus& corpus);

}  // namespace quintet::train
