// Defines ops that update parameters: for the optimizers in ops/update.cc, and for those of other projects.
#pragma once

#include "graph/op.h"

namespace quintet::graph {

// An op of kind Update with `moments` states per parameter. `attrs` are those of its own rule;
// with_update_attrs adds what every update has.
OpDef update_op(std::string_view name, int moments, std::vector<AttrSpec> attrs, decltype(OpDef::cost) cost);
// `own`, then weight decay, lr factor and weight decay by parameter group, its ramp, and the ranges.
std::vector<AttrSpec> with_update_attrs(std::vector<AttrSpec> own);

// Bytes and FLOPs of an update. Of each group's results the first `state` (the weight and its moments) are
// read as well as written; a copy for computing after them is only written.
Cost update_cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs, size_t state);
template <size_t kState>
Cost update_cost(const std::vector<Type>& in, const std::vector<Type>& out, const Attrs& attrs) {
  return update_cost(in, out, attrs, kState);
}

}  // namespace quintet::graph
