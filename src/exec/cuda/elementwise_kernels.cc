// Rotary positions, activations, sums, casts, dropout and concatenation of heads.
#include "exec/cuda/dropout_key.h"
#include "exec/cuda/gradients.h"
#include "exec/cuda/libraries.h"
#include "exec/decode/elementwise.h"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/elementwise/dropout.h"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/elementwise/rows.h"
#include "kernels/cuda/experts/expert_act.h"
#include "kernels/cuda/optimizer/scalars.h"
#include "kernels/cuda/reduce/reduce.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

void rope(const Bound& b, bool) {
  decode::rope(b, reinterpret_cast<const double*>(b.constants),
               [&]<class T>(T, auto... a) { k::rope<T>(a..., b.stream, decode::rotated_elements(b)); });
  if (const decode::RowBytes rest = decode::unrotated(b); rest.bytes > 0)
    k::copy_rows(b.in[0] + rest.first, b.out[0] + rest.first, rest.rows, rest.bytes, rest.stride, b.stream);
}
void prepare_rope(Bound& b) {
  const std::vector<double>& frequencies = b.instr->attrs.reals("inv_freq");
  b.constants = b.libraries->upload(std::as_bytes(std::span(frequencies)));
}
Kernel rope_kernel(const graph::OpDef& op) { return {&op, rope, prepare_rope}; }

}  // namespace

#include "exec/bind/elementwise.inc"

}  // namespace quintet::exec::cuda
