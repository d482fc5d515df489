#include "exec/decode/matrices.h"

#include "exec/decode/scratch.h"
#include "kernels/cpu/optimizer/newton_schulz.h"
#include "kernels/cuda/optimizer/newton_schulz.h"

namespace quintet::exec {
namespace {

using program::Instr;

int64_t newton_schulz_bytes(const Instr& i, int threads) {
  return kernels::cpu::newton_schulz_workspace_bytes(i.attrs.integer("rows"), i.attrs.integer("columns"),
                                                     i.in[0].type.dtype, threads);
}
int64_t cuda_newton_schulz_bytes(const Instr& i) {
  return kernels::cuda::newton_schulz_workspace_bytes(i.attrs.integer("rows"), i.attrs.integer("columns"),
                                                      i.in[0].type.dtype);
}

}  // namespace

const std::vector<Scratch>& matrix_scratch() {
  static const std::vector<Scratch> table = {
      {&graph::kNewtonSchulz, newton_schulz_bytes, cuda_newton_schulz_bytes}};
  return table;
}

}  // namespace quintet::exec
