// Where kernels write gradients of parameters: in place, in the type in which a recipe keeps them.
#pragma once

#include "exec/cuda/kernel.h"
#include "exec/with_type.h"

namespace quintet::exec::cuda {

// Runs `kernel(targets, accumulate, workspace)`; targets are addresses by output, null where there is none.
template <class T, size_t kOutputs, class F>
void with_gradients(const Bound& b, const size_t (&outputs)[kOutputs], bool accumulate, F&& kernel) {
  with_gradient<T>(b.out_type(outputs[0]).dtype, [&]<class D>(D) {
    D* targets[kOutputs];
    for (size_t i = 0; i < kOutputs; ++i) targets[i] = b.last_output<D>(outputs[i]);
    kernel(targets, accumulate, b.workspace);
  });
}

}  // namespace quintet::exec::cuda
