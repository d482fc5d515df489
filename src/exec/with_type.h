// Maps a dtype to the C++ type that kernels are instantiated with.
#pragma once

#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"
#include "base/f16.h"

namespace quintet::exec {

// The type of sums and row statistics over elements of T.
template <class T>
using Stat = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, base::Bf16> || std::is_same_v<T, base::F16>;

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
    case base::DType::F16:
      return fn(base::F16{});
    default:
      base::fail_internal("no kernel for {}", base::to_string(t));
  }
}

// Calls fn with a value of the C++ type of a parameter's gradient, computed from elements of T: bf16 for
// bf16, otherwise the type of the sums.
template <class T, class F>
void with_gradient(base::DType t, F&& fn) {
  if constexpr (std::is_same_v<T, double>) {
    fn(double{});
  } else {
    if constexpr (std::is_same_v<T, base::Bf16>)
      if (t == base::DType::BF16) return fn(base::Bf16{});
    fn(float{});
  }
}

// Calls fn with the type of logits, scores and weights of routing.
template <class F>
auto with_stat(base::DType t, F&& fn) {
  switch (t) {
    case base::DType::F64:
      return fn(double{});
    case base::DType::F32:
      return fn(float{});
    default:
      base::fail_internal("routing requires f32 or f64, got {}", base::to_string(t));
  }
}

// Calls fn with float or Bf16.
template <class F>
void with_f32_or_bf16(base::DType t, const char* what, F&& fn) {
  if (t == base::DType::F32) return fn(float{});
  if (t == base::DType::BF16) return fn(base::Bf16{});
  base::fail_internal("no update kernel for {} of {}", what, base::to_string(t));
}

// The types of an update (exec/decode/step.h).
struct UpdateTypes {
  base::DType master, moment, gradient, copy;
};

// Calls fn with the types of master, moments, gradient and low-precision copy. Bf16 gradients are supported
// with bf16 copies only.
template <class F>
void with_update_types(const UpdateTypes& t, F&& fn) {
  using base::Bf16;
  if (t.master == base::DType::F64) {
    if (t.moment != base::DType::F64 || t.gradient != base::DType::F64)
      base::fail_internal("f64 master weights require f64 moments and gradients");
    if (t.copy == base::DType::F32) return fn(double{}, double{}, double{}, float{});
    if (t.copy == base::DType::BF16) return fn(double{}, double{}, double{}, Bf16{});
    return fn(double{}, double{}, double{}, double{});
  }
  if (t.master != base::DType::F32)
    base::fail_internal("no update kernel for {} master weights", base::to_string(t.master));
  with_f32_or_bf16(t.moment, "moments", [&]<class V>(V) {
    with_f32_or_bf16(t.gradient, "gradients", [&]<class G>(G) {
      if (t.copy == base::DType::BF16) return fn(float{}, V{}, G{}, Bf16{});
      if constexpr (std::is_same_v<G, float>)
        t.copy == base::DType::F16 ? fn(float{}, V{}, G{}, base::F16{}) : fn(float{}, V{}, G{}, float{});
      else
        base::fail_internal("no update kernel for bf16 gradients with {} weights", base::to_string(t.copy));
    });
  });
}

}  // namespace quintet::exec
