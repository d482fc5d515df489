// config.json of Hugging Face folders as a model, and back. Every key is used, known to be irrelevant, or a
// problem: nothing is ignored silently.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "config/hf/family.h"

namespace quintet::config {

inline constexpr const char* kHfConfigFile = "config.json";

struct HfConfig {
  const HfFamily* family = nullptr;  // null: unknown model_type
  Model model;                       // values that are derived are filled in
  int64_t predict_layers = 0;        // blocks for multi-token prediction after the model's
  std::vector<std::string> problems;
};
// Never throws: a text that is not a JSON object is a problem.
HfConfig read_hf_config(std::string_view text);

// The family whose config.json describes the model completely; null with the reason when there is none.
const HfFamily* hf_family_of(const Model& model, std::string* why_not);

// A config.json for the model: `original`, where given, with the keys that have changed. `dtype` is
// "bfloat16", ...; `positions` the longest sequence trained, for a config that is generated.
std::string hf_config_text(const Model& model, const HfFamily& family, std::string_view original,
                           std::string_view dtype, int64_t positions);

// Keys of [model] that a recipe may set along with model.hf, to its own values: they change training, or
// positions, but no weight. Others must agree with config.json.
// With upcycling, a dense folder says nothing about experts.
bool is_free_beside_hf(std::string_view key, bool upcycling);

// What `model.hf` names: a folder, or not, with what to do instead ("org/name": the command that downloads).
std::optional<std::string> why_no_hf_folder(const base::Path& path, const std::string& as_given);

// Whether a folder has tokenizer files that data.tokenizer accepts.
bool has_tokenizer(const base::Path& folder);

}  // namespace quintet::config
