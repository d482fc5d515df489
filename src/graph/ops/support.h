// Small helpers shared by the op definitions.
#pragma once

#include "base/error.h"
#include "graph/autodiff.h"
#include "graph/op.h"

namespace quintet::graph {

// Refuses operands with a message that names the op, what was expected and what was given.
#define OP_REQUIRE(op, condition, ...)                                                       \
  do {                                                                                       \
    if (!(condition)) ::quintet::base::fail_user("[{}] {}", op, ::fmt::format(__VA_ARGS__)); \
  } while (false)

inline DType dtype_attr(const Attrs& attrs, std::string_view name) {
  const auto t = base::parse_dtype(attrs.text(name));
  QUINTET_CHECK(t.has_value(), "attribute {} is not a dtype", name);
  return *t;
}

inline std::string text_of(DType t) { return std::string(base::to_string(t)); }

inline bool has_tokens(const Type& t) { return !t.dims.empty() && t.dims[0].name == Dim::Tokens; }

// i32[tokens] for the same rows as x: ids, labels, positions, documents, sample numbers.
inline bool is_row_index(const Type& t, const Type& x) {
  return t.dtype == DType::I32 && t.num_dims() == 1 && has_tokens(x) && t.dims[0] == x.dims[0];
}

inline bool is_scalar(const Type& t, DType dtype) { return t.dtype == dtype && t.dims.empty(); }

inline OpDim tokens_dim(const std::vector<Type>& in, const std::vector<Type>& out, bool any_row = true) {
  OpDim d{.key = Dim::Tokens, .in = {}, .out = {}};
  const auto index = [](const Type& t) {
    for (int i = 0; i < t.num_dims(); ++i)
      if (t.dims[static_cast<size_t>(i)].name == Dim::Tokens) return i;
    return kAbsent;
  };
  for (const Type& t : in) d.in.push_back(index(t));
  for (const Type& t : out) d.out.push_back(index(t));
  d.any_row = any_row;
  return d;
}

}  // namespace quintet::graph
