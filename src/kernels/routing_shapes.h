// Sizes and options of routing to experts, on every backend.
#pragma once

#include <cstdint>

#include "base/row_order.h"

namespace quintet::kernels {

// The router: logits[rows, routes] = x[rows, embed] w[routes, embed]^T.
struct RouterShape {
  int64_t rows = 0, routes = 0, embed = 0;
};

// What a logit's score is: its share of the row's softmax, 1 / (1 + e^-x), or sqrt(ln(1 + e^x)).
enum class Score : uint8_t { Softmax, Sigmoid, SqrtSoftplus };

// The choice of each token's experts and their weights.
struct SelectShape {
  int64_t rows = 0, experts = 0, k = 0;
  Score score = Score::Softmax;
  bool top_k_first = false;  // choose by logit; weights are the softmax over the chosen logits
  bool normalise = false;    // divide the weights by their sum (+ kSmallest)
  double scale = 1;          // of the weights, applied last
  int64_t groups = 1;        // equal groups of consecutive experts, of which ...
  int64_t groups_kept = 1;   // ... this many take part
  // Of given choices: the width of their rows, of which k from this column on are of this router. 0: none
  // given.
  int64_t route_columns = 0, route_column = 0;
};

// Added to sums used as divisors, so that rows of vanishing sigmoids give 0.
inline constexpr double kSmallest = 1e-20;

// Which assignments are dropped when experts have a capacity.
struct LimitShape {
  base::RowOrder order;    // of a buffer that holds the rows of all its ranks
  int64_t k = 0;           // choices per row
  int64_t group = 1;       // consecutive sequences that share a capacity; divides order.sequences
  int64_t capacity = 0;    // (row, choice) pairs per expert and group
  bool by_weight = false;  // keep the largest weights, else the first
};

// The rows that every member of an exchange group sends to every expert, [member][expert], cut into passes.
struct PassShape {
  int64_t members = 0, all_experts = 0;
  int64_t experts = 0, copies = 0;  // of one member; members with the same experts
  int64_t rows = 0;                 // that a member receives in one pass
  int64_t position = 0;             // of this member
  int64_t slots = 0;
};

// Bits of the fraction that count when weights are compared. Tokens with equal context (the blanks at the
// start of a line) have equal weights up to rounding, which depends on the layout; the layout must not decide
// which of them is dropped.
template <class S>
inline constexpr int kTieBits = sizeof(S) == 8 ? 28 : 14;

// Load of the experts, and a loss that balances it.
struct LoadShape {
  int64_t rows = 0, experts = 0, k = 0;
};

struct BalanceLoss {
  int64_t groups_here = 0;  // groups whose sums are local
  int64_t groups = 0;       // groups over all ranks
  int64_t tokens = 0;       // rows per group, over all ranks
  int64_t experts = 0, k = 0;
  double coefficient = 0;
};

}  // namespace quintet::kernels
