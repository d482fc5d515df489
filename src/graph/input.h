// Inputs that the host provides to a graph: token rows of a micro-batch, and scalars of a step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quintet::graph {

enum class InputKind : uint8_t {
  // i32[tokens], filled for every micro-batch
  Ids,
  Labels,  // -1: not counted
  Positions,
  Documents,
  Samples,
  NextIds,     // the ids of the next row of the same document; 0 where there is none
  NextLabels,  // its labels; -1 where there is none
  TokenTypes,  // of an encoder: the part of a document that a token belongs to; 0 in data of one part
  // i32[tokens, choices]: for every block with experts in turn, the experts that select takes, plus 1; 0 in
  // the first of them: the router chooses
  Routes,
  // scalars
  Seed,        // f64: the gradient of the loss with respect to itself
  DropoutKey,  // i64
  LossScale,   // f64: the same for auxiliary losses
  User,        // a user-defined input, by name
};

// The token rows of an input that a rank loads: its own, or those of `ranks` neighbouring context ranks
// together (base/row_order.h).
struct RowSpan {
  int ranks = 1;
  friend bool operator==(const RowSpan&, const RowSpan&) = default;
  friend auto operator<=>(const RowSpan&, const RowSpan&) = default;
};

struct InputSpec {
  InputKind kind = InputKind::User;
  std::string user_name = {};  // User only
  RowSpan rows = {};
  friend bool operator==(const InputSpec&, const InputSpec&) = default;
  friend auto operator<=>(const InputSpec&, const InputSpec&) = default;
};

// The text form of an input in graphs and programs ("ids"; "documents:4" for the rows of 4 context ranks),
// and back. Nothing else parses the text: a name that is not built in is a user's.
std::string to_string(const InputSpec& spec);
InputSpec parse_input(std::string_view text);

}  // namespace quintet::graph
