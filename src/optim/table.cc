// The explicit list of optimizers (config/optimizers.inc): nothing registers itself.
#include "base/error.h"
#include "optim/step_builder.h"

namespace quintet::optim {

Optimizer find_optimizer(config::OptimizerKind kind) {
  switch (kind) {
#define QUINTET_OPTIMIZER(kind, name, ...) \
  case config::OptimizerKind::kind:        \
    return name;
#include "config/optimizers.inc"
    case config::OptimizerKind::Custom:
      return nullptr;
  }
  base::fail_internal("unknown optimizer");
}

}  // namespace quintet::optim
