// From a dtype to the C++ type that kernels are templates of.
#pragma once

#include "base/dtype.h"
#include "base/error.h"

namespace quintet::exec {

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
      base::fail_internal("no kernel for {}", base::to_string(t));
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

// Calls fn with the types of master, moments and low-precision copy.
template <class F>
void with_state_types(base::DType master, base::DType moment, base::DType copy, F&& fn) {
  if (master == base::DType::F64) {
    if (moment != base::DType::F64) base::fail_internal("f64 master weights want f64 moments");
    if (copy == base::DType::F32) return fn(double{}, double{}, float{});
    if (copy == base::DType::BF16) return fn(double{}, double{}, base::Bf16{});
    return fn(double{}, double{}, double{});
  }
  if (master != base::DType::F32)
    base::fail_internal("no update kernel for {} master weights", base::to_string(master));
  const bool low = copy == base::DType::BF16;
  if (moment == base::DType::F32)
    return low ? fn(float{}, float{}, base::Bf16{}) : fn(float{}, float{}, float{});
  if (moment == base::DType::BF16)
    return low ? fn(float{}, base::Bf16{}, base::Bf16{}) : fn(float{}, base::Bf16{}, float{});
  base::fail_internal("no update kernel for {} moments", base::to_string(moment));
}

}  // namespace quintet::exec
