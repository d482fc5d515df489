// The key of one use of dropout, derived on the device.
#pragma once

#include "exec/cuda/kernel.h"
#include "kernels/cuda/optimizer/scalars.h"

namespace quintet::exec::cuda {

// `seed` is the operand that holds the step's; the key is at the start of the scratch.
inline const uint64_t* dropout_key(const Bound& b, size_t seed) {
  auto* const key = reinterpret_cast<uint64_t*>(b.workspace);
  kernels::cuda::derive_key(b.input<const int64_t>(seed),
                            static_cast<uint64_t>(b.instr->attrs.integer("salt")), key, b.stream);
  return key;
}

}  // namespace quintet::exec::cuda
