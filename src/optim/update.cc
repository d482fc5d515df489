#include "optim/update.h"

namespace quintet::optim {

Update make_update(const config::Optimizer& o) {
  if (o.kind == config::OptimizerKind::AdamW)
    return {&graph::kAdamW,
            {{"beta1", o.betas[0]}, {"beta2", o.betas[1]}, {"eps", o.eps}, {"weight_decay", o.weight_decay}},
            2};
  return {&graph::kSgd, {{"momentum", o.momentum}, {"weight_decay", o.weight_decay}}, o.momentum > 0 ? 1 : 0};
}

}  // namespace quintet::optim
