// Access to one element of a weight of any dtype, for initialising, loading and comparing. Not for hot loops.
#pragma once

#include <cstddef>

#include "base/dtype.h"
#include "base/error.h"
#include "base/f16.h"

namespace quintet::train {

inline double read_element(const std::byte* data, base::DType dtype, int64_t i) {
  switch (dtype) {
    case base::DType::F64:
      return reinterpret_cast<const double*>(data)[i];
    case base::DType::F32:
      return reinterpret_cast<const float*>(data)[i];
    case base::DType::BF16:
      return static_cast<float>(reinterpret_cast<const base::Bf16*>(data)[i]);
    case base::DType::F16:
      return static_cast<float>(reinterpret_cast<const base::F16*>(data)[i]);
    default:
      base::fail_internal("weights cannot have dtype {}", base::to_string(dtype));
  }
}

inline void write_element(std::byte* data, base::DType dtype, int64_t i, double v) {
  switch (dtype) {
    case base::DType::F64:
      reinterpret_cast<double*>(data)[i] = v;
      break;
    case base::DType::F32:
      reinterpret_cast<float*>(data)[i] = static_cast<float>(v);
      break;
    case base::DType::BF16:
      reinterpret_cast<base::Bf16*>(data)[i] = base::Bf16(static_cast<float>(v));
      break;
    case base::DType::F16:
      reinterpret_cast<base::F16*>(data)[i] = base::F16(static_cast<float>(v));
      break;
    default:
      base::fail_internal("weights cannot have dtype {}", base::to_string(dtype));
  }
}

}  // namespace quintet::train
