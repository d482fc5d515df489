// The data of a run: training batches in the run's order, and evaluation sets in stored order.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/recipe.h"
#include "data/batch.h"
#include "tokenizer/tokenizer.h"
#include "train/host_share.h"

namespace quintet::train {

// One micro-batch per data-parallel rank at a time.
struct EvalData {
  std::string name;
  data::Batches batches;

  // Batches that one evaluation reads: eval.batches batches of batch.global sequences, or all of them. The
  // same sequences in every layout.
  int64_t batches_read(const config::Recipe& recipe) const;
  // Sequences of those.
  int64_t sequences_read(const config::Recipe& recipe) const;
};

struct RunData {
  data::Batches train;
  std::vector<EvalData> evals;  // what validation_fraction holds out of each set, then eval.sets
  std::string reading;          // files read and skipped; empty for token files and given corpora
  std::string tokenizer;        // tokenizer::vocabulary_hash
};

// Loads recipe.data. UserError when the path is not set, missing, empty, too short, damaged, exceeds the
// model's vocabulary, or has no label to learn from, and when a set that may not repeat is too small.
// With `share`, text is tokenised by one process of a host.
RunData load_data(const config::Recipe& recipe, HostShare* share = nullptr);
// The same from a given corpus; ignores recipe.data.path and recipe.data.blend.
RunData make_data(const config::Recipe& recipe, const data::Corpus& corpus);
// batch.ramp, for data::Batches::set_stages.
std::vector<data::BatchStart> batch_starts(const config::Recipe& recipe);
// How a recipe cuts a corpus into samples.
data::DatasetOptions dataset_options(const config::Recipe& recipe);
// How tokens of a recipe's data are masked; off unless the model is an encoder. `stream` names the random
// numbers. UserError when the tokenizer has no mask token.
data::MaskedTokens masked_tokens(const config::Recipe& recipe, const tokenizer::Tokenizer& tokenizer,
                                 std::string_view stream);
// UserError unless every path of the recipe's data exists. Reads nothing.
void require_data(const config::Recipe& recipe);
// UserError if load_data refuses them; larger data than 1 MiB in all are not read.
void require_loadable_if_small(const config::Recipe& recipe);

}  // namespace quintet::train
