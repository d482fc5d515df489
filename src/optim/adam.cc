// Adam (Kingma and Ba, 2015); weight decay is added to the gradient.
#include "optim/step_builder.h"

namespace quintet::optim {

void adam(StepBuilder& b, Trained& t) {
  const config::Optimizer& o = b.optimizer();
  const ValueId m = b.moment(t, "adam.m"), v = b.second_moment(t, "adam.v");
  b.update(graph::kAdam, {{"beta1", o.betas[0]}, {"beta2", o.betas[1]}, {"eps", o.eps}}, t, {m, v});
}

}  // namespace quintet::optim
