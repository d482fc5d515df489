// Operands and rules shared by the ops of routers, of load balancing and of experts.
#pragma once

#include "graph/ops/support.h"

namespace quintet::graph {

inline bool is_accumulator(DType t) { return t == DType::F32 || t == DType::F64; }

// [tokens, routes]: one number per token and expert.
inline bool is_row_of_routes(const Type& t) {
  return has_tokens(t) && t.num_dims() == 2 && t.dims[1].name == Dim::Routes;
}

// [tokens, choices] for the rows of `rows`.
inline bool is_choice(const Type& t, const Type& rows, DType dtype) {
  return t.dtype == dtype && has_tokens(t) && has_tokens(rows) && t.num_dims() == 2 &&
         t.dims[1].name == Dim::Choices && t.dims[0] == rows.dims[0];
}

// One number per token and expert, never narrower than the accumulator: logits, scores.
inline void require_routes(std::string_view op, std::string_view name, const Type& t) {
  OP_REQUIRE(op, is_row_of_routes(t) && is_accumulator(t.dtype),
             "expects {}[tokens, routes] in f32 or f64, got {}", name, to_string(t));
}

inline void require_routes_and_chosen(std::string_view op, std::string_view name, const Type& t,
                                      const Type& chosen) {
  require_routes(op, name, t);
  OP_REQUIRE(op, is_choice(chosen, t, DType::I32), "expects chosen i32[tokens={}, choices], got {}",
             t.size(0), to_string(chosen));
}

// Rows are whole sequences in the order of base::RowOrder{seq_len, ranks = cp, first = 0, count = cp}.
inline void require_row_order(std::string_view op, int64_t rows, const Attrs& attrs) {
  const int64_t seq_len = attrs.integer("seq_len"), cp = attrs.integer("cp");
  OP_REQUIRE(op, seq_len >= 1 && rows % seq_len == 0, "{} rows are not whole sequences of {}", rows, seq_len);
  OP_REQUIRE(op, cp == 1 || (cp > 1 && seq_len % (2 * cp) == 0),
             "sequences of {} cannot be split into two equal chunks for each of {} context ranks", seq_len,
             cp);
}

// Any row on its own, over the tensor ranks too.
inline std::vector<OpDim> spread_tokens(const std::vector<Type>& in, const std::vector<Type>& out,
                                        const Attrs&) {
  OpDim d = tokens_dim(in, out);
  d.spread = true;
  return {d};
}

}  // namespace quintet::graph
