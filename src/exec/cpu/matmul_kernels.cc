// Linear layers.
#include "exec/cpu/kernel.h"
#include "exec/decode/matmul.h"
#include "kernels/cpu/matmul/gemm.h"

namespace quintet::exec::cpu {
namespace {

void run_gemm(const Bound& b, const kernels::GemmArgs& args) {
  kernels::gemm(args, b.workspace, b.instr->workspace_bytes, *b.pool);
}

void linear(const Bound& b, bool) { run_gemm(b, linear_args(b)); }

void linear_dx(const Bound& b, bool) { run_gemm(b, linear_dx_args(b)); }

void linear_dw(const Bound& b, bool accumulate) { run_gemm(b, linear_dw_args(b, accumulate)); }

void run_all(const Bound& b, const std::vector<kernels::GemmArgs>& gemms) {
  for (const kernels::GemmArgs& p : gemms) run_gemm(b, p);
}
void linears(const Bound& b, bool) { run_all(b, linears_gemms(b, Join::No)); }
void linears_dx(const Bound& b, bool) { run_all(b, linears_dx_gemms(b, Join::No)); }
void linears_dw(const Bound& b, bool accumulate) { run_all(b, linears_dw_gemms(b, accumulate, Join::No)); }

}  // namespace

const std::vector<Kernel>& matmul_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kLinear, linear},   {&graph::kLinearDx, linear_dx},   {&graph::kLinearDw, linear_dw},
      {&graph::kLinears, linears}, {&graph::kLinearsDx, linears_dx}, {&graph::kLinearsDw, linears_dw}};
  return table;
}

}  // namespace quintet::exec::cpu
