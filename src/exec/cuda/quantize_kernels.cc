// Quantisation and linear layers on codes.
#include <algorithm>

#include "device/cuda/check.h"
#include "exec/cuda/kernel.h"
#include "exec/cuda/libraries.h"
#include "exec/decode/elementwise.h"
#include "exec/decode/norm.h"
#include "exec/decode/quantize.h"
#include "kernels/cuda/fp8/factors.h"
#include "kernels/cuda/fp8/quantize.h"
#include "kernels/cuda/fp8/scales.h"
#include "program/fp8_ops.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;
using program::Accumulate;

void quantize(const Bound& b, bool accumulate) {
  const std::vector<kernels::QuantizePart> parts = quantize_parts(b);
  k::quantize(quantize_args(b, parts, accumulate), b.stream);
}

void quantize_blocks(const Bound& b, bool accumulate) {
  const std::vector<kernels::QuantizePart> parts = quantize_parts(b);
  k::quantize_blocks(quantize_blocks_args(b, parts, accumulate), b.stream);
}

// The results of ops that quantise their own result. Storing it in bf16 first, as CPUs do, would cost what
// they save.
k::CodeTarget target_of(const Bound& b, const kernels::QuantizeArgs& args) {
  QUINTET_CHECK(args.type == base::DType::BF16, "[{}] makes {} codes, which only the CPU backend does",
                b.instr->op->name, base::to_string(args.type));
  QUINTET_CHECK(args.amax == nullptr || args.accumulate, "measures of [{}] are not accumulated",
                b.instr->op->name);
  return {.rows = static_cast<uint8_t*>(args.codes),
          .row_stride = args.columns,
          .columns = static_cast<uint8_t*>(args.transposed),
          .column_stride = args.rows,
          .format = args.format,
          .scale = static_cast<const float*>(args.scale),
          .measures = {args.amax, args.rounded}};
}

using k::Bf16;

void rms_norm_quantize(const Bound& b, bool accumulate) {
  const int64_t rows = norm_rows(*b.instr), n = norm_size(*b.instr);
  k::rmsnorm_codes(b.input<Bf16>(0), nullptr, b.input<Bf16>(1), nullptr, b.output<float>(0), rows, n,
                   b.instr->attrs.real("eps"), decode::norm_offset(b),
                   target_of(b, fused_quantize_args(b, 1, rows, n, accumulate)), b.stream);
}
void add_rms_norm_quantize(const Bound& b, bool accumulate) {
  const int64_t rows = norm_rows(*b.instr), n = norm_size(*b.instr);
  k::rmsnorm_codes(b.input<Bf16>(0), b.input<Bf16>(1), b.input<Bf16>(2), b.output<Bf16>(0),
                   b.output<float>(1), rows, n, b.instr->attrs.real("eps"), decode::norm_offset(b),
                   target_of(b, fused_quantize_args(b, 2, rows, n, accumulate)), b.stream);
}
void rms_norm_again_quantize(const Bound& b, bool) {
  const int64_t rows = norm_rows(*b.instr), n = norm_size(*b.instr);
  k::rmsnorm_again_codes(b.input<Bf16>(0), b.input<Bf16>(1), b.input<float>(2), rows, n,
                         decode::norm_offset(b), target_of(b, transposed_codes_args(b, 0, "scale", rows, n)),
                         b.stream);
}
// The scales are one more operand than the decoder of swiglu expects.
void swiglu_quantize(const Bound& b, bool accumulate) {
  const bool packed = b.in.size() == 2;
  const graph::Type& gate = b.in_type(0);
  const int64_t rows = gate.size(0), n = gate.count() / std::max<int64_t>(rows, 1) / (packed ? 2 : 1);
  const decode::GateUp<Bf16> in = decode::gate_up_in<Bf16>(b.in, 0, packed, n);
  k::swiglu_codes(in.gate, in.up, in.stride, rows, n, decode::gate_of(b),
                  target_of(b, fused_quantize_args(b, 0, rows, n, accumulate)), b.stream);
}
void swiglu_backward_quantize(const Bound& b, bool accumulate) {
  const graph::Type& dy = b.in_type(0);
  const int64_t rows = dy.size(0), n = dy.count() / std::max<int64_t>(rows, 1);
  const decode::GateUp<Bf16> in = decode::gate_up_in<Bf16>(b.in, 1, true, n);
  const k::CodeTarget again =
      b.instr->attrs.integer("again") == 0
          ? k::CodeTarget{}
          : target_of(b, transposed_codes_args(b, b.out.size() - 1, "again_scale", rows, n));
  k::swiglu_backward_codes(b.input<Bf16>(0), in.gate, in.up, in.stride, rows, n, decode::gate_of(b),
                           target_of(b, fused_quantize_args(b, 0, rows, 2 * n, accumulate)), again, b.stream);
}

// Tensor cores take codes only: numbers on a format's grid in f32 or f64 are for comparisons on CPUs.
kernels::GemmArgs gemm_of(const kernels::ScaledGemmArgs& g) {
  QUINTET_CHECK(base::size_of(g.a_type) == 1, "GEMMs of {} codes run only on the CPU backend",
                base::to_string(g.a_type));
  return {.trans_b = true,
          .m = g.m,
          .n = g.n,
          .k = g.k,
          .a = g.a,
          .lda = g.k,
          .b = g.b,
          .ldb = g.k,
          .c = g.c,
          .ldc = g.n,
          .a_type = g.a_type,
          .b_type = g.b_type,
          .c_type = g.c_type,
          .accumulate = g.accumulate,
          .addend = g.addend,
          .a_scale = static_cast<const float*>(g.a_factor),
          .b_scale = static_cast<const float*>(g.b_factor),
          .fast_accumulation = g.fast};
}

// A matrix of factors in device memory: rows of `width`, `stride` apart.
struct FactorRows {
  const void* at;
  int64_t stride;
};
void copy_factors(std::byte* out, int64_t stride, const FactorRows& in, int64_t width, int64_t rows,
                  k::Stream stream) {
  constexpr size_t kBytes = sizeof(float);
  device::cuda::check(
      cudaMemcpy2DAsync(out, static_cast<size_t>(stride) * kBytes, in.at,
                        static_cast<size_t>(in.stride) * kBytes, static_cast<size_t>(width) * kBytes,
                        static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, stream),
      "factors of blocks");
}
// With its factors where and as cuBLASLt reads them; `scratch` has block_factor_bytes(). Without `copies`
// only the addresses are right, for tuning.
kernels::ScaledGemmArgs with_ordered_factors(kernels::ScaledGemmArgs g, std::byte* scratch, k::Stream stream,
                                             bool copies) {
  if (g.block == 0 || g.m == 0 || g.n == 0 || g.k == 0) return g;
  const int64_t blocks = g.k / g.block, padded = k::padded_factors(blocks);
  if (g.a_stride != g.m) {
    if (copies) copy_factors(scratch, g.m, {g.a_factor, g.a_stride}, g.m, blocks, stream);
    g.a_factor = scratch;
    g.a_stride = g.m;
  }
  if (g.square_b && blocks != padded) {
    scratch += k::a_factor_bytes(g);
    if (copies) copy_factors(scratch, padded, {g.b_factor, blocks}, blocks, g.n / g.block, stream);
    g.b_factor = scratch;
  }
  return g;
}

constexpr int64_t kGemmBytes = k::Matmul::kWorkspaceBytes;

// Calls f with the arguments of a GEMM, of either kind.
template <class F>
void with_gemm(const kernels::ScaledGemmArgs& g, F&& f) {
  if (g.block > 0)
    f(k::BlockGemmArgs{gemm_of(g), g.square_b});
  else
    f(gemm_of(g));
}

void scaled_linear(const Bound& b, bool accumulate) {
  for (const kernels::ScaledGemmArgs& g : scaled_gemms(b, accumulate))
    with_gemm(with_ordered_factors(g, b.workspace + kGemmBytes, b.stream, true),
              [&](const auto& args) { b.libraries->matmul().run(args, b.workspace, kGemmBytes, b.stream); });
}
void prepare_scaled_linear(Bound& b) {
  if (!b.libraries->tunes()) return;
  const auto tune = [&](bool accumulate) {
    for (const kernels::ScaledGemmArgs& g : scaled_gemms(b, accumulate))
      with_gemm(with_ordered_factors(g, b.workspace + kGemmBytes, b.stream, false),
                [&](const auto& args) { b.libraries->matmul().tune(args, kGemmBytes, b.stream); });
  };
  if (b.instr->accumulate != Accumulate::Always) tune(false);
  if (b.instr->accumulate != Accumulate::Never) tune(true);
}

// Constants: largest numbers, then initial scales.
void prepare_delayed_scales(Bound& b) {
  const ScalesOperands s = scales_operands(b);
  std::vector<double> numbers = s.largest;
  numbers.insert(numbers.end(), s.initial.begin(), s.initial.end());
  b.constants = b.libraries->upload(std::as_bytes(std::span(numbers)));
}
void delayed_scales(const Bound& b, bool) {
  const ScalesOperands s = scales_operands(b);
  const auto n = static_cast<int64_t>(s.largest.size());
  const auto* const numbers = reinterpret_cast<const double*>(b.constants);
  k::delayed_scales(s.history, s.length, numbers, numbers + n, n, b.output<float>(0), graph::kScaleStride,
                    b.stream);
}

// Constants: rows of the history.
void prepare_record_amax(Bound& b) {
  b.constants = b.libraries->upload(std::as_bytes(std::span(amax_operands(b).rows)));
}
void record_amax(const Bound& b, bool) {
  const AmaxOperands s = amax_operands(b);
  k::record_amax(s.amax, reinterpret_cast<const int64_t*>(b.constants), static_cast<int64_t>(s.rows.size()),
                 s.ok, s.update_count, s.length, s.num_rows, s.history, b.stream);
}

}  // namespace

const std::vector<Kernel>& quantize_kernels() {
  static const std::vector<Kernel> table = {{&graph::kQuantize, quantize},
                                            {&graph::kScaledLinear, scaled_linear, prepare_scaled_linear},
                                            {&graph::kScaledLinearDx, scaled_linear, prepare_scaled_linear},
                                            {&graph::kScaledLinearDw, scaled_linear, prepare_scaled_linear},
                                            {&graph::kQuantizeBlocks, quantize_blocks},
                                            {&graph::kBlockLinear, scaled_linear, prepare_scaled_linear},
                                            {&graph::kBlockLinearDx, scaled_linear, prepare_scaled_linear},
                                            {&graph::kBlockLinearDw, scaled_linear, prepare_scaled_linear},
                                            {&graph::kDelayedScales, delayed_scales, prepare_delayed_scales},
                                            {&graph::kRecordAmax, record_amax, prepare_record_amax},
                                            {&graph::kRmsNormQuantize, rms_norm_quantize},
                                            {&graph::kAddRmsNormQuantize, add_rms_norm_quantize},
                                            {&graph::kRmsNormAgainQuantize, rms_norm_again_quantize},
                                            {&graph::kSwiGluQuantize, swiglu_quantize},
                                            {&graph::kSwiGluBackwardQuantize, swiglu_backward_quantize}};
  return table;
}

}  // namespace quintet::exec::cuda
