// Lion (Chen et al., 2023): the sign of an interpolated momentum, with decoupled weight decay.
#include "optim/step_builder.h"

namespace quintet::optim {

void lion(StepBuilder& b, Trained& t) {
  const config::Optimizer& o = b.optimizer();
  const ValueId m = b.moment(t, "lion.m");
  b.update(graph::kLion, {{"beta1", o.betas[0]}, {"beta2", o.betas[1]}}, t, {m});
}

}  // namespace quintet::optim
