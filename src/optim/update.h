// The optimizer as an op on flat ranges of parameters.
#pragma once

#include "config/recipe.h"
#include "graph/op.h"

namespace quintet::optim {

struct Update {
  const graph::OpDef* op;
  graph::Attrs attrs;
  int num_moments;  // state tensors of the parameter's size
};

Update make_update(const config::Optimizer& optimizer);

}  // namespace quintet::optim
