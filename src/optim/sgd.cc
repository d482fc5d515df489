// Stochastic gradient descent, with optional momentum.
#include "optim/step_builder.h"

namespace quintet::optim {

void sgd(StepBuilder& b, Trained& t) {
  const config::Optimizer& o = b.optimizer();
  std::vector<ValueId> states;
  if (o.momentum > 0) states.push_back(b.moment(t, "sgd.velocity"));
  b.update(graph::kSgd, {{"momentum", o.momentum}, {"nesterov", int64_t{o.nesterov}}}, t, states);
}

}  // namespace quintet::optim
