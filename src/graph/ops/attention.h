// The gradient of attention, which attention_sink replaces by its own.
#pragma once

#include "graph/autodiff.h"

namespace quintet::graph {

// Whether queries see the keys after them too.
inline bool sees_both_sides(const Attrs& attrs) {
  return attrs.find("both_sides") != nullptr && attrs.integer("both_sides") != 0;
}

// Adds the gradients of q, k and v of an [attention] node, from the gradient of its output, the output and
// the log-sum-exp of its scores.
void attention_gradient(GradContext& g, const Node& attention, ValueId dout, ValueId o, ValueId lse);

}  // namespace quintet::graph
