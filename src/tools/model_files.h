// Models in files: export of a run to a Hugging Face folder, conversion between formats, comparison, and the
// logits of a text for comparisons with other implementations.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "config/recipe.h"

namespace quintet::tools {

struct ConvertOptions {
  std::optional<base::DType> dtype;  // empty: as in the folder that the run started from, or as trained
  int64_t shard_bytes = 5'000'000'000;
  std::optional<int64_t> step;                  // of a run's checkpoints; empty: the newest
  bool overwrite = false;                       // replace an existing .safetensors file
  std::function<void(const std::string&)> log;  // notes for the user
};

// A run or a checkpoint as a folder that transformers and vLLM load: safetensors, config.json, generation
// config and tokenizer. Streamed: memory does not grow with the model. Returns a line for the user.
std::string export_model(const base::Path& from, const base::Path& to, const ConvertOptions& options);

// Any source of weights (hf::open_tensors) as a folder, or as one file where `to` ends with .safetensors. A
// run or checkpoint is exported; other tensors keep their names.
std::string convert_model(const base::Path& from, const base::Path& to, const ConvertOptions& options);

struct DiffReport {
  bool equal = false;
  std::string text, json;
};
// Compares the tensors of two sources. Of a run and a Hugging Face folder, the run is compared as exported.
DiffReport diff_models(const base::Path& a, const base::Path& b);

// The logits after every token of `ids` ([tokens, vocab], in precision.compute), computed on one rank with
// the weights of model.hf, to a safetensors file.
void write_logits(config::Recipe recipe, const std::vector<int32_t>& ids, const base::Path& out);

}  // namespace quintet::tools
