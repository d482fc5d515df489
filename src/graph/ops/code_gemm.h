// GEMMs of codes in three places of a linear layer (ops/scaled_linear.cc, ops/block_linear.cc): both operands
// are stored along the dims that are contracted, the last `contracted` ones of each.
#pragma once

#include "graph/ops/support.h"

namespace quintet::graph {

// a[m..., k...], b[n..., k...] -> y[m..., n...], of type `out`. Refuses operands that are not codes.
Type code_gemm_result(std::string_view op, const Type& a, const Type& b, const Attrs& attrs);

// As for linear: the dims of a before those that are contracted, then those of b, then the contracted ones.
// Operands after the first two are left out (kAbsent), except an addend, number `addend` if there is one.
std::vector<OpDim> code_gemm_dims(const std::vector<Type>& in, size_t addend, const Attrs& attrs);

// Of an OpDef; only the first two operands count.
Gemm code_gemm_size(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs);
Cost code_gemm_cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs);

inline size_t contracted_of(const Attrs& attrs) { return static_cast<size_t>(attrs.integer("contracted")); }

}  // namespace quintet::graph
