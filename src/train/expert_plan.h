// What a layout makes of a model's experts, read off the compiled graph of a rank.
#pragma once

#include <optional>
#include <string>

#include "compiler/compile.h"

namespace quintet::train {

struct ExpertPlan {
  int64_t blocks = 0;    // of the model that have experts
  int64_t experts = 0;   // in each of them
  int64_t choices = 0;   // experts per token
  int64_t per_rank = 0;  // experts on a rank
  int64_t senders = 1;   // ranks that exchange rows with each other: ep x etp
  // Rows per micro-batch that a rank's experts have room for, and those they get when all experts are used
  // alike.
  int64_t room = 0, mean = 0;
  // At most so many rows per expert and group of sequences; 0: all. Padded: rows of each expert and sender,
  // filled up with zeros; 0: not padded.
  int64_t capacity = 0, group_sequences = 0, padded = 0;
  std::string policy;  // who stays when there are more: "probability", "position"

  // Whether fewer rows than there is room for can come.
  bool is_bound() const { return padded == 0 && (capacity > 0 || room > mean); }
};

// Nothing for a model without experts.
std::optional<ExpertPlan> expert_plan(const compiler::Compiled& compiled);

}  // namespace quintet::train
