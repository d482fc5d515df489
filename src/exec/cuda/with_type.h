// From a dtype to the C++ type that kernels are templates of.
#pragma once

#include "base/dtype.h"
#include "base/error.h"

namespace quintet::exec::cuda {

// Calls fn with a value of the C++ type of a floating dtype.
template <class F>
auto with_type(base::DType t, F&& fn) {
  switch (t) {
    case base::DType::F64:
      return fn(double{});
    case base::DType::F32:
      return fn(float{});
    case base::DType::BF16:
      return fn(base::Bf16{});
    default:
      base::fail_internal("no CUDA kernel for {}", base::to_string(t));
  }
}

// The same for logits, scores and weights of routing.
template <class F>
auto with_stat(base::DType t, F&& fn) {
  switch (t) {
    case base::DType::F64:
      return fn(double{});
    case base::DType::F32:
      return fn(float{});
    default:
      base::fail_internal("routing is done in f32 or f64, not in {}", base::to_string(t));
  }
}

}  // namespace quintet::exec::cuda
