// How a layout distributes a model's experts, read from the compiled graph of a rank.
#pragma once

#include <optional>
#include <string>

#include "compiler/compile.h"
#include "program/words.h"

namespace quintet::train {

struct ExpertPlan {
  int64_t blocks = 0;    // blocks with experts
  int64_t experts = 0;   // per block
  int64_t choices = 0;   // experts per token
  int64_t per_rank = 0;  // experts on a rank
  int64_t senders = 1;   // ranks that exchange rows with each other: ep x etp
  // Rows per micro-batch: the planned capacity of a rank's experts, and what they receive under even routing.
  int64_t room = 0, mean = 0;
  bool passes = false;  // rows past `room` take further passes
  // Maximum rows per expert and group of `group_sequences` sequences; 0: unlimited.
  int64_t capacity = 0, group_sequences = 0;
  // Rows per expert and sender after zero padding; 0: not padded.
  int64_t padded = 0;

  // Whether `room` is an upper bound that a step may stay below.
  bool is_bound() const { return padded == 0 && (capacity > 0 || room > mean || passes); }
};

// Empty for a model without experts.
std::optional<ExpertPlan> expert_plan(const compiler::Compiled& compiled);

}  // namespace quintet::train
