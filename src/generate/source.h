// Where a model that generates text comes from: a run folder, a checkpoint, a Hugging Face folder or a
// recipe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/recipe.h"
#include "tokenizer/tokenizer.h"
#include "train/rank.h"

namespace quintet::generate {

struct SourceOptions {
  std::optional<int64_t> step;  // of a run folder: the checkpoint of this step instead of the newest
  bool averages = false;        // the averages of the weights (optimizer.ema) instead of the weights
  bool random_weights = false;  // of a recipe: weights as training starts with
  std::string tokenizer;        // instead of the model's
  std::optional<base::DType> dtype;
  std::optional<config::DeviceKind> device;  // empty: that of the run, or the CPU where it is not available
  std::optional<int64_t> tp;                 // tensor-parallel ranks; empty: those of the recipe
  bool needs_text = true;                    // false: no tokenizer is opened
  std::function<void(const std::string&)> log;
};

struct Source {
  // The model with the layout of generation: tensor parallelism is kept, data, pipeline and context ranks
  // have no use for it.
  config::Recipe recipe;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::vector<int32_t> ends;      // tokens that end a text
  std::optional<int32_t> prefix;  // the token before a text: beginning of text, or else end of text
  std::string name;               // for people
  base::Path checkpoint, hf;      // where the weights are; both empty: random
  bool averages = false;

  // Loads a rank's part of the weights, or draws them; returns the bytes that were read. Collective over the
  // rank's world.
  int64_t load(train::Rank& rank) const;
};

// UserError for anything else, with what is missing.
Source open_source(const base::Path& path, const SourceOptions& options);

}  // namespace quintet::generate
