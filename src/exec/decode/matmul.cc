#include "exec/decode/matmul.h"

#include <algorithm>

#include "exec/decode/scratch.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cuda/matmul/matmul.h"

namespace quintet::exec {
namespace {

using graph::Type;
using program::Instr;

int64_t width(const Type& t) { return t.count() / std::max<int64_t>(t.size(0), 1); }

kernels::GemmArgs with_operands(const Operands& b, kernels::GemmArgs args) {
  args.a = b.in[0];
  args.b = b.in[1];
  args.c = b.out[0];
  args.a_type = b.in_type(0).dtype;
  args.b_type = b.in_type(1).dtype;
  args.c_type = b.out_type(0).dtype;
  if (b.in.size() > 2) args.addend = b.in[2];
  return args;
}

}  // namespace

LinearShape linear_shape(const Instr& i) {
  const int64_t in = width(i.in[0].type);
  return {i.in[0].type.size(0), i.in[1].type.count() / std::max<int64_t>(in, 1), in};
}
LinearShape linear_dx_shape(const Instr& i) {
  const int64_t out = width(i.in[0].type);
  return {i.in[0].type.size(0), out, i.in[1].type.count() / std::max<int64_t>(out, 1)};
}
LinearShape linear_dw_shape(const Instr& i) {
  return {i.in[0].type.size(0), width(i.in[0].type), width(i.in[1].type)};
}

namespace {

// Null when addresses are not known: then only sizes are needed.
std::byte* address(const std::vector<std::byte*>& list, size_t i) { return list.empty() ? nullptr : list[i]; }

// Columns from `first` on of the rows at `base`.
std::byte* columns_at(std::byte* base, int64_t first, base::DType type) {
  return base == nullptr ? nullptr : base + first * base::size_of(type);
}

// Parts of a packed value: one each, or neighbours combined whose matrices are contiguous.
struct Part {
  std::byte* matrix;
  int64_t first, count;  // columns of the packed value = rows of the matrix
};
std::vector<Part> parts_of(const std::vector<std::byte*>& matrices,
                           const std::vector<program::Operand>& operands, size_t from, int64_t row_bytes,
                           Join join) {
  std::vector<Part> list;
  int64_t column = 0;
  for (size_t i = from; i < operands.size(); ++i) {
    const int64_t count = operands[i].type.bytes() / row_bytes;
    std::byte* const at = address(matrices, i);
    if (join == Join::Yes && !list.empty() && at == list.back().matrix + list.back().count * row_bytes)
      list.back().count += count;
    else
      list.push_back({at, column, count});
    column += count;
  }
  std::reverse(list.begin(), list.end());
  return list;
}

}  // namespace

std::vector<kernels::GemmArgs> linears_gemms(const Operands& b, Join join) {
  const Type &x = b.in_type(0), &y = b.out_type(0);
  const int64_t in = width(x);
  std::vector<kernels::GemmArgs> gemms;
  for (const Part& part : parts_of(b.in, b.instr->in, 1, in * base::size_of(x.dtype), join))
    gemms.push_back({.trans_b = true,
                     .m = x.size(0),
                     .n = part.count,
                     .k = in,
                     .a = address(b.in, 0),
                     .lda = in,
                     .b = part.matrix,
                     .ldb = in,
                     .c = columns_at(address(b.out, 0), part.first, y.dtype),
                     .ldc = width(y),
                     .a_type = x.dtype,
                     .b_type = x.dtype,
                     .c_type = y.dtype});
  return gemms;
}

std::vector<kernels::GemmArgs> linears_dx_gemms(const Operands& b, Join join) {
  const Type &dy = b.in_type(0), &dx = b.out_type(0);
  const int64_t in = width(dx);
  std::vector<kernels::GemmArgs> gemms;
  for (const Part& part : parts_of(b.in, b.instr->in, 1, in * base::size_of(dy.dtype), join))
    gemms.push_back({.m = dy.size(0),
                     .n = in,
                     .k = part.count,
                     .a = columns_at(address(b.in, 0), part.first, dy.dtype),
                     .lda = width(dy),
                     .b = part.matrix,
                     .ldb = in,
                     .c = address(b.out, 0),
                     .ldc = in,
                     .a_type = dy.dtype,
                     .b_type = dy.dtype,
                     .c_type = dx.dtype,
                     .accumulate = !gemms.empty()});
  return gemms;
}

std::vector<kernels::GemmArgs> linears_dw_gemms(const Operands& b, bool accumulate, Join join) {
  const Type &dy = b.in_type(0), &x = b.in_type(1);
  const base::DType type = b.out_type(0).dtype;
  const int64_t in = width(x);
  std::vector<kernels::GemmArgs> gemms;
  for (const Part& part : parts_of(b.out, b.instr->out, 0, in * base::size_of(type), join))
    gemms.push_back({.trans_a = true,
                     .m = part.count,
                     .n = in,
                     .k = x.size(0),
                     .a = columns_at(address(b.in, 0), part.first, dy.dtype),
                     .lda = width(dy),
                     .b = address(b.in, 1),
                     .ldb = in,
                     .c = part.matrix,
                     .ldc = in,
                     .a_type = dy.dtype,
                     .b_type = dy.dtype,
                     .c_type = type,
                     .accumulate = accumulate});
  return gemms;
}

kernels::GemmArgs linear_args(const Operands& b) {
  const LinearShape s = linear_shape(*b.instr);
  return with_operands(
      b, {.trans_b = true, .m = s.rows, .n = s.out, .k = s.in, .lda = s.in, .ldb = s.in, .ldc = s.out});
}
kernels::GemmArgs linear_dx_args(const Operands& b) {
  const LinearShape s = linear_dx_shape(*b.instr);
  return with_operands(b, {.m = s.rows, .n = s.in, .k = s.out, .lda = s.out, .ldb = s.in, .ldc = s.in});
}
kernels::GemmArgs linear_dw_args(const Operands& b, bool accumulate) {
  const LinearShape s = linear_dw_shape(*b.instr);
  return with_operands(b, {.trans_a = true,
                           .m = s.out,
                           .n = s.in,
                           .k = s.rows,
                           .lda = s.out,
                           .ldb = s.in,
                           .ldc = s.in,
                           .accumulate = accumulate});
}

namespace {

int64_t gemm_bytes(const Instr& i, int64_t m, int64_t n, int64_t kk, int threads) {
  return kernels::gemm_workspace_bytes(m, n, kk, i.in[0].type.dtype, i.out[0].type.dtype, threads);
}
int64_t linear_bytes(const Instr& i, int threads) {
  const LinearShape s = linear_shape(i);
  return gemm_bytes(i, s.rows, s.out, s.in, threads);
}
int64_t linear_dx_bytes(const Instr& i, int threads) {
  const LinearShape s = linear_dx_shape(i);
  return gemm_bytes(i, s.rows, s.in, s.out, threads);
}
int64_t linear_dw_bytes(const Instr& i, int threads) {
  const LinearShape s = linear_dw_shape(i);
  return gemm_bytes(i, s.out, s.in, s.rows, threads);
}
int64_t largest_scratch(const std::vector<kernels::GemmArgs>& gemms, int threads) {
  int64_t most = 0;
  for (const kernels::GemmArgs& p : gemms)
    most = std::max(most, kernels::gemm_workspace_bytes(p.m, p.n, p.k, p.a_type, p.c_type, threads));
  return most;
}
Operands without_addresses(const Instr& i) { return {.instr = &i, .in = {}, .out = {}}; }
int64_t linears_bytes(const Instr& i, int threads) {
  return largest_scratch(linears_gemms(without_addresses(i), Join::No), threads);
}
int64_t linears_dx_bytes(const Instr& i, int threads) {
  return largest_scratch(linears_dx_gemms(without_addresses(i), Join::No), threads);
}
int64_t linears_dw_bytes(const Instr& i, int threads) {
  return largest_scratch(linears_dw_gemms(without_addresses(i), false, Join::No), threads);
}

int64_t cuda_bytes(const Instr&) { return kernels::cuda::Matmul::kWorkspaceBytes; }

}  // namespace

const std::vector<Scratch>& matmul_scratch() {
  static const std::vector<Scratch> table = {
      {&graph::kLinear, linear_bytes, cuda_bytes},        {&graph::kLinearDx, linear_dx_bytes, cuda_bytes},
      {&graph::kLinearDw, linear_dw_bytes, cuda_bytes},   {&graph::kLinears, linears_bytes, cuda_bytes},
      {&graph::kLinearsDx, linears_dx_bytes, cuda_bytes}, {&graph::kLinearsDw, linears_dw_bytes, cuda_bytes}};
  return table;
}

}  // namespace quintet::exec
