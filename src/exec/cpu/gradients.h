// Where kernels write gradients of parameters. They sum in Stat<T>; gradients that a recipe keeps in bf16 are
// summed in scratch before the kernel's own, then rounded into place, or added to the old values, once.
#pragma once

#include "exec/cpu/kernel.h"
#include "exec/decode/sizes.h"
#include "kernels/cpu/elementwise/pointwise.h"

namespace quintet::exec::cpu {

// Runs `kernel(targets, accumulate, workspace)`; targets are Stat<T>* by output, null where there is none.
template <class T, size_t kOutputs, class F>
void with_gradients(const Bound& b, const size_t (&outputs)[kOutputs], bool accumulate, F&& kernel) {
  using S = Stat<T>;
  S* targets[kOutputs] = {};
  std::byte* workspace = b.workspace;
  bool narrow = false;
  for (size_t k = 0; k < kOutputs; ++k) {
    if (outputs[k] >= b.out.size()) continue;
    const graph::Type& type = b.out_type(outputs[k]);
    if (sums_bytes(type) > 0) {
      narrow = true;
      targets[k] = reinterpret_cast<S*>(workspace);
      workspace += sums_bytes(type);
    } else {
      targets[k] = b.output<S>(outputs[k]);
    }
  }
  kernel(targets, accumulate && !narrow, workspace);
  if constexpr (std::is_same_v<S, float>) {
    for (size_t k = 0; narrow && k < kOutputs; ++k) {
      if (targets[k] == nullptr) continue;
      auto* const to = b.output<base::Bf16>(outputs[k]);
      const int64_t n = b.out_type(outputs[k]).count();
      if (accumulate)
        kernels::cpu::accumulate<float, base::Bf16>(targets[k], to, 1.0, n, *b.pool);
      else
        kernels::cpu::cast<float, base::Bf16>(targets[k], to, n, *b.pool);
    }
  }
}

}  // namespace quintet::exec::cpu
