// What a run loads of a checkpoint, by name. Tensors that only one of the two has are refused unless a rule
// says what becomes of them; nothing is left out silently.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "compiler/compile.h"

namespace quintet::train {

// `--load PATTERN=POLICY`.
struct LoadRule {
  enum class Policy : uint8_t {
    Fresh,   // tensors of the run: initialised as at step 1, whatever the checkpoint has
    Ignore,  // tensors of the checkpoint that the run does not have: left out
  };
  std::string pattern;  // of names: * and ?
  Policy policy = Policy::Fresh;
};
// UserError unless the text is "PATTERN=fresh" or "PATTERN=ignore".
LoadRule parse_load_rule(const std::string& text);

struct LoadOptions {
  bool weights_only = false;  // no moments; averages restart from the weights
  bool averages = false;      // with weights_only: the averages (optimizer.ema) become the weights
  std::vector<LoadRule> rules = {};
};

struct LoadPlan {
  std::map<std::string, std::string> sources;  // tensor of the run: tensor of the checkpoint
  std::vector<std::string> notes;              // what is not as saved, for the user
};

// `states` and `tensors` are those of the run, on all ranks. Elements of another floating type are converted.
// UserError with every tensor that does not fit; `source` is the checkpoint's name in it.
LoadPlan plan_load(const std::vector<graph::StateDecl>& states,
                   const std::vector<checkpoint::TensorInfo>& tensors, const checkpoint::Manifest& manifest,
                   const std::string& source, const LoadOptions& options);

}  // namespace quintet::train
