// LAMB (You et al., 2020): Adam's direction with weight decay, scaled by |parameter| / |direction|.
#include "optim/step_builder.h"

namespace quintet::optim {

void lamb(StepBuilder& b, Trained& t) {
  const config::Optimizer& o = b.optimizer();
  const ValueId m = b.moment(t, "lamb.m"), v = b.second_moment(t, "lamb.v");
  graph::Attrs attrs = {{"beta1", o.betas[0]}, {"beta2", o.betas[1]}, {"eps", o.eps}};
  b.update_by_ratio(graph::kLambNorms, graph::kLamb, std::move(attrs), t, {m, v}, {m, v});
}

}  // namespace quintet::optim
