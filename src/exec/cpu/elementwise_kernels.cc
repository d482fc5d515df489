// Rotary positions, activations, sums, casts, dropout and concatenation of heads.
#include <cstring>

#include "exec/cpu/dropout_key.h"
#include "exec/cpu/gradients.h"
#include "exec/decode/elementwise.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/elementwise/dropout.h"
#include "kernels/cpu/elementwise/heads.h"
#include "kernels/cpu/elementwise/pointwise.h"
#include "kernels/cpu/elementwise/rope.h"
#include "kernels/cpu/elementwise/rows.h"
#include "kernels/cpu/reduce/reduce.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

void rope(const Bound& b, bool) {
  decode::rope(b, b.instr->attrs.reals("inv_freq").data(),
               [&]<class T>(T, auto... a) { k::rope<T>(a..., *b.pool, decode::rotated_elements(b)); });
  const decode::RowBytes rest = decode::unrotated(b);
  for (int64_t at = rest.first; rest.bytes > 0 && at < rest.rows * rest.stride; at += rest.stride)
    std::memcpy(b.out[0] + at, b.in[0] + at, static_cast<size_t>(rest.bytes));
}
Kernel rope_kernel(const graph::OpDef& op) { return {&op, rope}; }

}  // namespace

#include "exec/bind/elementwise.inc"

}  // namespace quintet::exec::cpu
