// LARS (You et al., 2017): SGD with momentum and a learning rate scaled by |parameter| / |gradient|.
#include "optim/step_builder.h"

namespace quintet::optim {

void lars(StepBuilder& b, Trained& t) {
  const config::Optimizer& o = b.optimizer();
  std::vector<ValueId> states;
  if (o.momentum > 0) states.push_back(b.moment(t, "lars.velocity"));
  graph::Attrs attrs = {{"momentum", o.momentum}, {"trust", o.trust}};
  b.update_by_ratio(graph::kLarsNorms, graph::kLars, std::move(attrs), t, states, {});
}

}  // namespace quintet::optim
