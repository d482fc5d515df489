// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
#include "optim/step_builder.h"

namespace quintet::optim {

void adamw(StepBuilder& b, Trained& t) {
  const config::Optimizer& o = b.optimizer();
  const ValueId m = b.moment(t, "adamw.m"), v = b.second_moment(t, "adamw.v");
  b.update(graph::kAdamW, {{"beta1", o.betas[0]}, {"beta2", o.betas[1]}, {"eps", o.eps}}, t, {m, v});
}

}  // namespace quintet::optim
