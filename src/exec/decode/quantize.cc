#include "exec/decode/quantize.h"

#include <algorithm>

#include "exec/decode/scratch.h"
#include "kernels/cpu/quantize/quantize.h"
#include "kernels/cuda/fp8/factors.h"
#include "kernels/cuda/matmul/matmul.h"
#include "program/fp8_ops.h"

namespace quintet::exec {

using graph::Type;
using program::Instr;

namespace {

int64_t elements_of(const Type& t, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t i = begin; i < end; ++i) n *= t.dims[i].size;
  return n;
}

int64_t contracted(const Type& t, const graph::Attrs& attrs) {
  return elements_of(t, t.dims.size() - static_cast<size_t>(attrs.integer("contracted")), t.dims.size());
}

bool is_blocked(const Instr& i) { return i.attrs.find("block") != nullptr; }

// The address of scale `index`'s reciprocal.
const std::byte* factor(const Operands& b, const char* attribute) {
  if (b.in.empty()) return nullptr;
  const Type& scales = b.in_type(2);
  const int64_t n = graph::num_scales(scales.size(0)),
                at = graph::reciprocal_at(b.instr->attrs.integer(attribute), n);
  return b.in[2] + at * base::size_of(scales.dtype);
}

}  // namespace

std::vector<kernels::QuantizePart> quantize_parts(const Operands& b) {
  const auto rows = static_cast<size_t>(b.instr->attrs.integer("rows"));
  std::vector<kernels::QuantizePart> parts;
  const size_t scales = is_blocked(*b.instr) ? 0 : 1;
  for (size_t i = 0; i + scales < b.instr->in.size(); ++i)
    parts.push_back({b.in.empty() ? nullptr : b.in[i], elements_of(b.in_type(i), 0, rows)});
  return parts;
}

namespace {

// The address of scale number `index`.
const std::byte* scale_address(const Operands& b, int64_t index) {
  if (b.in.empty()) return nullptr;
  return b.in.back() + graph::scale_at(index) * base::size_of(b.in_type(b.instr->in.size() - 1).dtype);
}

std::byte* result(const Operands& b, size_t first, int i) {
  return i < 0 || b.out.empty() ? nullptr : b.out[first + static_cast<size_t>(i)];
}

}  // namespace

kernels::QuantizeArgs fused_quantize_args(const Operands& b, size_t first, int64_t rows, int64_t columns,
                                          bool accumulate) {
  const graph::Attrs& attrs = b.instr->attrs;
  const graph::QuantizeResults at = graph::quantize_results(attrs);
  return {.rows = rows,
          .columns = columns,
          .type = b.in_type(0).dtype,
          .format = *base::parse_dtype(attrs.text("format")),
          .scale = scale_address(b, attrs.integer("scale")),
          .codes = result(b, first, at.codes),
          .transposed = result(b, first, at.transposed),
          .amax = reinterpret_cast<double*>(result(b, first, at.amax)),
          .rounded = reinterpret_cast<double*>(result(b, first, at.rounded)),
          .accumulate = accumulate};
}

kernels::QuantizeArgs transposed_codes_args(const Operands& b, size_t out, const char* scale, int64_t rows,
                                            int64_t columns) {
  return {.rows = rows,
          .columns = columns,
          .type = b.in_type(0).dtype,
          .format = base::DType::E4M3,
          .scale = scale_address(b, b.instr->attrs.integer(scale)),
          .transposed = result(b, out, 0)};
}

namespace {

int64_t rows_of(const std::vector<kernels::QuantizePart>& parts) {
  int64_t rows = 0;
  for (const kernels::QuantizePart& p : parts) rows += p.rows;
  return rows;
}

int64_t columns_of(const Operands& b) {
  const Type& x = b.in_type(0);
  return elements_of(x, static_cast<size_t>(b.instr->attrs.integer("rows")), x.dims.size());
}

// Elements that are no values: the last shard of a vocabulary that is not divisible ends in padding.
int64_t padding_of(const Operands& b, int64_t count) {
  int64_t values = count;
  for (const program::Part& p : b.instr->parts)
    if (p.valid < p.size) values = values / p.size * p.valid;
  return count - values;
}

}  // namespace

kernels::QuantizeArgs quantize_args(const Operands& b, const std::vector<kernels::QuantizePart>& parts,
                                    bool accumulate) {
  kernels::QuantizeArgs args = fused_quantize_args(b, 0, rows_of(parts), columns_of(b), accumulate);
  args.parts = parts;
  args.padding = padding_of(b, args.rows * args.columns);
  return args;
}

kernels::QuantizeBlocksArgs quantize_blocks_args(const Operands& b,
                                                 const std::vector<kernels::QuantizePart>& parts,
                                                 bool accumulate) {
  const graph::Attrs& attrs = b.instr->attrs;
  const graph::QuantizeResults at = graph::quantize_results(attrs);
  const int64_t rows = rows_of(parts), columns = columns_of(b);
  return {.parts = parts,
          .rows = rows,
          .columns = columns,
          .type = b.in_type(0).dtype,
          .format = *base::parse_dtype(attrs.text("format")),
          .block = attrs.integer("block"),
          .square = attrs.integer("square") != 0,
          .codes = result(b, 0, at.codes),
          .factors = result(b, 0, at.factors),
          .transposed = result(b, 0, at.transposed),
          .transposed_factors = result(b, 0, at.transposed_factors),
          .rounded = reinterpret_cast<double*>(result(b, 0, at.rounded)),
          .accumulate = accumulate,
          .padding = padding_of(b, rows * columns)};
}

std::vector<kernels::ScaledGemmArgs> scaled_gemms(const Operands& b, bool accumulate) {
  const graph::Attrs& attrs = b.instr->attrs;
  const Type &left = b.in_type(0), &right = b.in_type(1);
  const bool blocked = is_blocked(*b.instr), bound = !b.in.empty();
  const int64_t k = contracted(left, attrs), n = right.count() / std::max<int64_t>(k, 1);
  kernels::ScaledGemmArgs all{.m = left.count() / std::max<int64_t>(k, 1),
                              .n = n,
                              .k = k,
                              .a = bound ? b.in[0] : nullptr,
                              .b = bound ? b.in[1] : nullptr,
                              .a_type = left.dtype,
                              .b_type = right.dtype,
                              .a_factor = blocked ? (bound ? b.in[2] : nullptr) : factor(b, "a_scale"),
                              .b_factor = blocked ? (bound ? b.in[3] : nullptr) : factor(b, "b_scale"),
                              .accumulate = accumulate,
                              .fast = b.instr->op == &graph::kScaledLinear};
  const size_t addend = blocked ? 4 : 3;
  if (b.in.size() > addend) all.addend = b.in[addend];
  if (blocked) {
    all.block = attrs.integer("block");
    all.a_stride = all.m;
    all.square_b = attrs.integer("square") != 0;
  }
  std::vector<kernels::ScaledGemmArgs> gemms;
  int64_t row = 0;
  for (size_t i = 0; i < b.instr->out.size(); ++i) {
    const Type& y = b.out_type(i);
    const int64_t m = y.count() / std::max<int64_t>(n, 1), bytes = y.bytes();
    std::byte* const c = b.out.empty() ? nullptr : b.out[i];
    if (!gemms.empty() && c != nullptr &&
        c == static_cast<std::byte*>(gemms.back().c) + gemms.back().m * n * base::size_of(y.dtype) &&
        bytes > 0) {
      gemms.back().m += m;
    } else {
      kernels::ScaledGemmArgs& g = gemms.emplace_back(all);
      g.m = m;
      g.c = c;
      g.c_type = y.dtype;
      if (bound) {
        g.a = b.in[0] + row * k * base::size_of(left.dtype);
        if (blocked) g.a_factor = b.in[2] + row * base::size_of(b.in_type(2).dtype);
      }
    }
    row += m;
  }
  return gemms;
}

ScalesOperands scales_operands(const Operands& b) {
  return {b.input<double>(0), graph::kAmaxHistory, b.instr->attrs.reals("largest"),
          b.instr->attrs.reals("initial")};
}

AmaxOperands amax_operands(const Operands& b) {
  return {b.input<double>(0),  b.instr->attrs.integers("scales"),
          b.input<double>(1),  b.input<double>(2),
          graph::kAmaxHistory, b.out_type(0).count() / graph::kAmaxHistory,
          b.output<double>(0)};
}

namespace {

// Of the whole GEMM: parts may be joined or not.
int64_t scaled_cpu_bytes(const Instr& i, int threads) {
  const std::vector<kernels::ScaledGemmArgs> gemms = scaled_gemms({.instr = &i, .in = {}, .out = {}}, false);
  kernels::ScaledGemmArgs whole = gemms.front();
  for (size_t g = 1; g < gemms.size(); ++g) whole.m += gemms[g].m;
  int64_t most = kernels::cpu::scaled_gemm_workspace_bytes(whole, threads);
  for (const kernels::ScaledGemmArgs& g : gemms)
    most = std::max(most, kernels::cpu::scaled_gemm_workspace_bytes(g, threads));
  return most;
}

int64_t scaled_cuda_bytes(const Instr&) { return kernels::cuda::Matmul::kWorkspaceBytes; }

// And factors in the order that cuBLASLt reads.
int64_t block_cuda_bytes(const Instr& i) {
  int64_t bytes = kernels::cuda::Matmul::kWorkspaceBytes;
  for (const kernels::ScaledGemmArgs& g : scaled_gemms({.instr = &i, .in = {}, .out = {}}, false))
    bytes = std::max(bytes, kernels::cuda::Matmul::kWorkspaceBytes + kernels::cuda::block_factor_bytes(g));
  return bytes;
}

// CPUs store the result and quantise it. x or dy has its size; packed gradients have twice that, and a norm's
// result is made again together with a gradient.
int64_t like_first(const Instr& i, int) { return i.in[0].type.bytes(); }
int64_t like_gate(const Instr& i, int) {
  const bool packed = i.in.size() == 2;
  return i.in[0].type.bytes() / (packed ? 2 : 1);
}
int64_t gradients_and_result(const Instr& i, int) { return i.in[1].type.bytes() + i.in[0].type.bytes(); }
int64_t twice_first(const Instr& i, int) { return 2 * i.in[0].type.bytes(); }

}  // namespace

const std::vector<Scratch>& quantize_scratch() {
  static const std::vector<Scratch> table = {{&graph::kScaledLinear, scaled_cpu_bytes, scaled_cuda_bytes},
                                             {&graph::kScaledLinearDx, scaled_cpu_bytes, scaled_cuda_bytes},
                                             {&graph::kScaledLinearDw, scaled_cpu_bytes, scaled_cuda_bytes},
                                             {&graph::kBlockLinear, scaled_cpu_bytes, block_cuda_bytes},
                                             {&graph::kBlockLinearDx, scaled_cpu_bytes, block_cuda_bytes},
                                             {&graph::kBlockLinearDw, scaled_cpu_bytes, block_cuda_bytes},
                                             {&graph::kRmsNormQuantize, like_first, nullptr},
                                             {&graph::kAddRmsNormQuantize, like_first, nullptr},
                                             {&graph::kSwiGluQuantize, like_gate, nullptr},
                                             {&graph::kSwiGluBackwardQuantize, gradients_and_result, nullptr},
                                             {&graph::kRmsNormAgainQuantize, twice_first, nullptr}};
  return table;
}

}  // namespace quintet::exec
