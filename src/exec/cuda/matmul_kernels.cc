// Linear layers.
#include <algorithm>
#include <span>
#include <vector>

#include "exec/cuda/kernel.h"
#include "exec/cuda/libraries.h"
#include "exec/decode/matmul.h"
#include "kernels/cuda/matmul/narrow.h"

namespace quintet::exec::cuda {
namespace {

using kernels::GemmArgs;
using program::Accumulate;

bool is_narrow(const Bound& b, const GemmArgs& args) {
  return kernels::cuda::is_narrow(args) &&
         kernels::cuda::narrow_workspace_bytes(args) <= b.instr->workspace_bytes;
}

// Few rows, as in decoding: bound by reading the weights.
void run_gemm(const Bound& b, const GemmArgs& args) {
  if (is_narrow(b, args))
    return kernels::cuda::narrow_matmul(args, b.libraries->weights_are_constant(), b.workspace,
                                        reinterpret_cast<uint32_t*>(const_cast<std::byte*>(b.constants)),
                                        b.stream);
  b.libraries->matmul().run(args, b.workspace, b.instr->workspace_bytes, b.stream);
}
void tune(Bound& b, const GemmArgs& args) {
  if (is_narrow(b, args)) {
    const std::vector<uint32_t> zeros(static_cast<size_t>(kernels::cuda::kNarrowCounters), 0);
    b.constants = b.libraries->upload(std::as_bytes(std::span(zeros)));
  } else if (b.libraries->tunes()) {
    b.libraries->matmul().tune(args, b.instr->workspace_bytes, b.stream);
  }
}

void linear(const Bound& b, bool) { run_gemm(b, linear_args(b)); }
void linear_dx(const Bound& b, bool) { run_gemm(b, linear_dx_args(b)); }
void linear_dw(const Bound& b, bool accumulate) { run_gemm(b, linear_dw_args(b, accumulate)); }

void prepare_linear(Bound& b) { tune(b, linear_args(b)); }
void prepare_linear_dx(Bound& b) { tune(b, linear_dx_args(b)); }
// A result that accumulates only in some calls is two problems for cuBLASLt.
void prepare_linear_dw(Bound& b) {
  if (b.instr->accumulate != Accumulate::Always) tune(b, linear_dw_args(b, false));
  if (b.instr->accumulate != Accumulate::Never) tune(b, linear_dw_args(b, true));
}

void run_all(const Bound& b, const std::vector<GemmArgs>& gemms) {
  for (const GemmArgs& p : gemms) run_gemm(b, p);
}
void tune_all(Bound& b, const std::vector<GemmArgs>& gemms) {
  for (const GemmArgs& p : gemms) tune(b, p);
}

void linears(const Bound& b, bool) { run_all(b, linears_gemms(b, Join::Yes)); }
void linears_dx(const Bound& b, bool) { run_all(b, linears_dx_gemms(b, Join::Yes)); }
void linears_dw(const Bound& b, bool accumulate) { run_all(b, linears_dw_gemms(b, accumulate, Join::Yes)); }
void prepare_linears(Bound& b) { tune_all(b, linears_gemms(b, Join::Yes)); }
void prepare_linears_dx(Bound& b) { tune_all(b, linears_dx_gemms(b, Join::Yes)); }
void prepare_linears_dw(Bound& b) {
  if (b.instr->accumulate != Accumulate::Always) tune_all(b, linears_dw_gemms(b, false, Join::Yes));
  if (b.instr->accumulate != Accumulate::Never) tune_all(b, linears_dw_gemms(b, true, Join::Yes));
}

}  // namespace

const std::vector<Kernel>& matmul_kernels() {
  static const std::vector<Kernel> table = {{&graph::kLinear, linear, prepare_linear},
                                            {&graph::kLinearDx, linear_dx, prepare_linear_dx},
                                            {&graph::kLinearDw, linear_dw, prepare_linear_dw},
                                            {&graph::kLinears, linears, prepare_linears},
                                            {&graph::kLinearsDx, linears_dx, prepare_linears_dx},
                                            {&graph::kLinearsDw, linears_dw, prepare_linears_dw}};
  return table;
}

}  // namespace quintet::exec::cuda
