// The explicit list of optimizers: nothing registers itself.
#include "base/error.h"
#include "optim/step_builder.h"

namespace quintet::optim {

Optimizer find_optimizer(config::OptimizerKind kind) {
  switch (kind) {
    case config::OptimizerKind::AdamW:
      return adamw;
    case config::OptimizerKind::Adam:
      return adam;
    case config::OptimizerKind::Sgd:
      return sgd;
    case config::OptimizerKind::Lion:
      return lion;
    case config::OptimizerKind::Lamb:
      return lamb;
    case config::OptimizerKind::Lars:
      return lars;
    case config::OptimizerKind::AdamW8bit:
      return adamw8bit;
    case config::OptimizerKind::Adafactor:
      return adafactor;
    case config::OptimizerKind::Muon:
      return muon;
    case config::OptimizerKind::Custom:
      return nullptr;
  }
  base::fail_internal("unknown optimizer");
}

}  // namespace quintet::optim
