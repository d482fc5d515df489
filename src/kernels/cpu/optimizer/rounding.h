// Stochastic rounding of moments (kernels/stochastic_rounding.h), as the CPU's kernels take it.
#pragma once

#include "kernels/update_ranges.h"

namespace quintet::kernels::cpu {

struct Rounding {
  Origin origin;
  int64_t update = 0;  // 1-based
};

}  // namespace quintet::kernels::cpu
