// Arguments of linear layers, for the kernels of every backend.
#pragma once

#include "exec/operands.h"
#include "kernels/gemm_args.h"

namespace quintet::exec {

// Rows and columns of the matrices x[tokens, in...] and w[out..., in...].
struct LinearShape {
  int64_t rows, out, in;
};
LinearShape linear_shape(const program::Instr& instr);     // x, w -> y
LinearShape linear_dx_shape(const program::Instr& instr);  // dy, w -> dx
LinearShape linear_dw_shape(const program::Instr& instr);  // dy, x -> dw

// The GEMM of linear, linear_dx and linear_dw.
kernels::GemmArgs linear_args(const Operands& b);
kernels::GemmArgs linear_dx_args(const Operands& b);
kernels::GemmArgs linear_dw_args(const Operands& b, bool accumulate);

// The GEMMs of linears, linears_dx and linears_dw: one per weight, in the order in which linear_dx of each
// would be summed (the last weight first), so that the results are bit-equal. With Join::Yes, weights or
// gradients of weights that are contiguous are one matrix and take part in one GEMM.
enum class Join : uint8_t { No, Yes };
std::vector<kernels::GemmArgs> linears_gemms(const Operands& b, Join join);
std::vector<kernels::GemmArgs> linears_dx_gemms(const Operands& b, Join join);
std::vector<kernels::GemmArgs> linears_dw_gemms(const Operands& b, bool accumulate, Join join);

}  // namespace quintet::exec
