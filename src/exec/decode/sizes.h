// Sizes that several families derive from types, and the contract of the folder.
//
// The functions of namespace decode read an instruction's operands and sizes and call `kernel` with a value
// of the element type and, in their common order, the arguments that the kernels of every backend take; the
// backend adds its own (scratch, thread pool or stream). Where a parameter's gradient is written, the
// backend's with_gradients() supplies its address and the scratch.
#pragma once

#include <initializer_list>

#include "exec/operands.h"
#include "exec/with_type.h"

namespace quintet::exec {

// The last dim, and all others together.
inline int64_t last_size(const graph::Type& t) { return t.dims.back().size; }
inline int64_t num_rows(const graph::Type& t) { return last_size(t) == 0 ? 0 : t.count() / last_size(t); }
inline int64_t row_bytes(const graph::Type& t) { return columns(t) * base::size_of(t.dtype); }

// CPU kernels sum gradients of parameters in a wide type: gradients that a recipe keeps in bf16 are summed in
// scratch before the kernel's own (exec/cpu/gradients.h).
inline int64_t sums_bytes(const graph::Type& gradient) {
  const int64_t bytes = gradient.count() * static_cast<int64_t>(sizeof(float)), to = 64;
  return gradient.dtype == graph::DType::BF16 ? (bytes + to - 1) / to * to : 0;
}

inline int64_t sums_bytes(const program::Instr& i, std::initializer_list<size_t> outputs) {
  int64_t bytes = 0;
  for (const size_t o : outputs)
    if (o < i.out.size()) bytes += sums_bytes(i.out[o].type);
  return bytes;
}

}  // namespace quintet::exec
