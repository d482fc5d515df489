// The key of one use of dropout.
#pragma once

#include "base/philox.h"
#include "exec/operands.h"

namespace quintet::exec::cpu {

// `seed` is the operand that holds the step's.
inline uint64_t dropout_key(const Operands& b, size_t seed) {
  const auto words = base::philox(static_cast<uint64_t>(*b.input<const int64_t>(seed)),
                                  static_cast<uint64_t>(b.instr->attrs.integer("salt")));
  return (uint64_t{words[0]} << 32) | words[1];
}

}  // namespace quintet::exec::cpu
