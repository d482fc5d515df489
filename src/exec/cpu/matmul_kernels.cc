// Linear layers.
#include <algorithm>

#include "exec/cpu/kernel.h"
#include "exec/shapes.h"
#include "kernels/cpu/matmul/gemm.h"

namespace quintet::exec::cpu {
namespace {

using program::Instr;

void run_gemm(const Bound& b, kernels::GemmArgs args) {
  args.a = b.in[0];
  args.b = b.in[1];
  args.c = b.out[0];
  args.a_type = b.in_type(0).dtype;
  args.b_type = b.in_type(1).dtype;
  args.c_type = b.out_type(0).dtype;
  if (b.in.size() > 2) args.addend = b.in[2];
  kernels::gemm(args, b.workspace, b.instr->workspace_bytes, *b.pool);
}

int64_t gemm_bytes(const Instr& i, int64_t m, int64_t n, int64_t kk, int threads) {
  return kernels::gemm_workspace_bytes(m, n, kk, i.in[0].type.dtype, i.out[0].type.dtype, threads);
}

void linear(const Bound& b, bool) {
  const LinearShape s = linear_shape(*b.instr);
  run_gemm(b, {.trans_b = true, .m = s.rows, .n = s.out, .k = s.in, .lda = s.in, .ldb = s.in, .ldc = s.out});
}
int64_t linear_bytes(const Instr& i, int threads) {
  const LinearShape s = linear_shape(i);
  return gemm_bytes(i, s.rows, s.out, s.in, threads);
}

void linear_dx(const Bound& b, bool) {
  const LinearShape s = linear_dx_shape(*b.instr);
  run_gemm(b, {.m = s.rows, .n = s.in, .k = s.out, .lda = s.out, .ldb = s.in, .ldc = s.in});
}
int64_t linear_dx_bytes(const Instr& i, int threads) {
  const LinearShape s = linear_dx_shape(i);
  return gemm_bytes(i, s.rows, s.in, s.out, threads);
}

void linear_dw(const Bound& b, bool accumulate) {
  const LinearShape s = linear_dw_shape(*b.instr);
  run_gemm(b, {.trans_a = true,
               .m = s.out,
               .n = s.in,
               .k = s.rows,
               .lda = s.out,
               .ldb = s.in,
               .ldc = s.in,
               .accumulate = accumulate});
}
int64_t linear_dw_bytes(const Instr& i, int threads) {
  const LinearShape s = linear_dw_shape(i);
  return gemm_bytes(i, s.out, s.in, s.rows, threads);
}

void run_all(const Bound& b, const std::vector<kernels::GemmArgs>& products) {
  for (const kernels::GemmArgs& p : products)
    kernels::gemm(p, b.workspace, b.instr->workspace_bytes, *b.pool);
}
void linears(const Bound& b, bool) { run_all(b, linears_products(b, Join::No)); }
void linears_dx(const Bound& b, bool) { run_all(b, linears_dx_products(b, Join::No)); }
void linears_dw(const Bound& b, bool accumulate) { run_all(b, linears_dw_products(b, accumulate, Join::No)); }

int64_t most_bytes(const std::vector<kernels::GemmArgs>& products, int threads) {
  int64_t most = 0;
  for (const kernels::GemmArgs& p : products)
    most = std::max(most, kernels::gemm_workspace_bytes(p.m, p.n, p.k, p.a_type, p.c_type, threads));
  return most;
}
Operands without_addresses(const Instr& i) { return {.instr = &i, .in = {}, .out = {}}; }
int64_t linears_bytes(const Instr& i, int threads) {
  return most_bytes(linears_products(without_addresses(i), Join::No), threads);
}
int64_t linears_dx_bytes(const Instr& i, int threads) {
  return most_bytes(linears_dx_products(without_addresses(i), Join::No), threads);
}
int64_t linears_dw_bytes(const Instr& i, int threads) {
  return most_bytes(linears_dw_products(without_addresses(i), false, Join::No), threads);
}

}  // namespace

const std::vector<Kernel>& matmul_kernels() {
  static const std::vector<Kernel> table = {{&graph::kLinear, linear, linear_bytes},
                                            {&graph::kLinearDx, linear_dx, linear_dx_bytes},
                                            {&graph::kLinearDw, linear_dw, linear_dw_bytes},
                                            {&graph::kLinears, linears, linears_bytes},
                                            {&graph::kLinearsDx, linears_dx, linears_dx_bytes},
                                            {&graph::kLinearsDw, linears_dw, linears_dw_bytes}};
  return table;
}

}  // namespace quintet::exec::cpu
