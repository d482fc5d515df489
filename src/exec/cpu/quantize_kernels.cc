// Quantisation and linear layers on codes.
#include "exec/cpu/kernel.h"
#include "exec/decode/elementwise.h"
#include "exec/decode/norm.h"
#include "exec/decode/quantize.h"
#include "kernels/cpu/elementwise/activation.h"
#include "kernels/cpu/norm/norm.h"
#include "kernels/cpu/quantize/quantize.h"
#include "program/fp8_ops.h"

namespace quintet::exec::cpu {
namespace {

namespace k = kernels::cpu;

void quantize(const Bound& b, bool accumulate) {
  const std::vector<kernels::QuantizePart> parts = quantize_parts(b);
  k::quantize(quantize_args(b, parts, accumulate), *b.pool);
}

void quantize_blocks(const Bound& b, bool accumulate) {
  const std::vector<kernels::QuantizePart> parts = quantize_parts(b);
  k::quantize_blocks(quantize_blocks_args(b, parts, accumulate), *b.pool);
}

// Quantises a matrix of scratch.
void quantize_scratch(const Bound& b, kernels::QuantizeArgs args, const void* x) {
  const kernels::QuantizePart part{x, args.rows};
  args.parts = {&part, 1};
  k::quantize(args, *b.pool);
}

void rms_norm_quantize(const Bound& b, bool accumulate) {
  const int64_t rows = norm_rows(*b.instr), n = norm_size(*b.instr);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::rmsnorm<T>(b.input<T>(0), b.input<T>(1), reinterpret_cast<T*>(b.workspace), b.output<Stat<T>>(0), rows,
                  n, b.instr->attrs.real("eps"), *b.pool, decode::norm_offset(b));
  });
  quantize_scratch(b, fused_quantize_args(b, 1, rows, n, accumulate), b.workspace);
}

void add_rms_norm_quantize(const Bound& b, bool accumulate) {
  const int64_t rows = norm_rows(*b.instr), n = norm_size(*b.instr);
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    k::add_rmsnorm<T>(b.input<T>(0), b.input<T>(1), b.input<T>(2), b.output<T>(0),
                      reinterpret_cast<T*>(b.workspace), b.output<Stat<T>>(1), rows, n,
                      b.instr->attrs.real("eps"), *b.pool, decode::norm_offset(b));
  });
  quantize_scratch(b, fused_quantize_args(b, 2, rows, n, accumulate), b.workspace);
}

// x, w, rstd -> y again: what rmsnorm_dx returns beside a gradient, which is not needed here.
void rms_norm_again_quantize(const Bound& b, bool) {
  const int64_t rows = norm_rows(*b.instr), n = norm_size(*b.instr);
  std::byte* const y = b.workspace + b.in_type(0).bytes();
  with_type(b.in_type(0).dtype, [&]<class T>(T) {
    const T* const x = b.input<T>(0);
    k::rmsnorm_dx<T>(x, x, b.input<T>(1), b.input<Stat<T>>(2), nullptr, reinterpret_cast<T*>(b.workspace),
                     rows, n, *b.pool, decode::norm_offset(b), reinterpret_cast<T*>(y));
  });
  quantize_scratch(b, transposed_codes_args(b, 0, "scale", rows, n), y);
}

// The scales are one more operand than the decoder of swiglu expects.
void swiglu_quantize(const Bound& b, bool accumulate) {
  const bool packed = b.in.size() == 2;
  const graph::Type& gate = b.in_type(0);
  const int64_t rows = gate.size(0), n = columns(gate) / (packed ? 2 : 1);
  with_type(gate.dtype, [&]<class T>(T) {
    const decode::GateUp<T> in = decode::gate_up_in<T>(b.in, 0, packed, n);
    k::swiglu<T>(in.gate, in.up, in.stride, reinterpret_cast<T*>(b.workspace), rows, n, *b.pool,
                 decode::gate_of(b));
  });
  quantize_scratch(b, fused_quantize_args(b, 0, rows, n, accumulate), b.workspace);
}

void swiglu_backward_quantize(const Bound& b, bool accumulate) {
  const graph::Type& dy = b.in_type(0);
  const int64_t rows = dy.size(0), n = columns(dy);
  const bool again = b.instr->attrs.integer("again") != 0;
  std::byte* const y = b.workspace + b.in_type(1).bytes();
  with_type(dy.dtype, [&]<class T>(T) {
    const decode::GateUp<T> in = decode::gate_up_in<T>(b.in, 1, true, n);
    T* const d = reinterpret_cast<T*>(b.workspace);
    k::swiglu_backward<T>(b.input<T>(0), in.gate, in.up, in.stride, d, d + n,
                          again ? reinterpret_cast<T*>(y) : nullptr, rows, n, *b.pool, decode::gate_of(b));
  });
  quantize_scratch(b, fused_quantize_args(b, 0, rows, 2 * n, accumulate), b.workspace);
  if (again) quantize_scratch(b, transposed_codes_args(b, b.out.size() - 1, "again_scale", rows, n), y);
}

void scaled_linear(const Bound& b, bool accumulate) {
  for (const kernels::ScaledGemmArgs& args : scaled_gemms(b, accumulate))
    k::scaled_gemm(args, b.workspace, b.instr->workspace_bytes, *b.pool);
}

void delayed_scales(const Bound& b, bool) {
  const ScalesOperands s = scales_operands(b);
  with_stat(b.out_type(0).dtype, [&]<class T>(T) {
    k::delayed_scales(s.history, s.length, s.largest, s.initial, graph::kScaleStride, b.output<T>(0));
  });
}

void record_amax(const Bound& b, bool) {
  const AmaxOperands s = amax_operands(b);
  if (*s.ok == 0) return;
  k::record_amax(s.amax, s.rows, history_slot(*s.update_count, s.length), s.length, s.num_rows, s.history);
}

}  // namespace

const std::vector<Kernel>& quantize_kernels() {
  static const std::vector<Kernel> table = {{&graph::kQuantize, quantize},
                                            {&graph::kScaledLinear, scaled_linear},
                                            {&graph::kScaledLinearDx, scaled_linear},
                                            {&graph::kScaledLinearDw, scaled_linear},
                                            {&graph::kQuantizeBlocks, quantize_blocks},
                                            {&graph::kBlockLinear, scaled_linear},
                                            {&graph::kBlockLinearDx, scaled_linear},
                                            {&graph::kBlockLinearDw, scaled_linear},
                                            {&graph::kDelayedScales, delayed_scales},
                                            {&graph::kRecordAmax, record_amax},
                                            {&graph::kRmsNormQuantize, rms_norm_quantize},
                                            {&graph::kAddRmsNormQuantize, add_rms_norm_quantize},
                                            {&graph::kRmsNormAgainQuantize, rms_norm_again_quantize},
                                            {&graph::kSwiGluQuantize, swiglu_quantize},
                                            {&graph::kSwiGluBackwardQuantize, swiglu_backward_quantize}};
  return table;
}

}  // namespace quintet::exec::cpu
