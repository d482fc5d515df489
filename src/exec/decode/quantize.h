// Arguments of quantisation and of linear layers on codes, for the kernels of every backend.
#pragma once

#include "exec/operands.h"
#include "kernels/quantize_args.h"

namespace quintet::exec {

// `parts` is what the result refers to.
std::vector<kernels::QuantizePart> quantize_parts(const Operands& b);
kernels::QuantizeArgs quantize_args(const Operands& b, const std::vector<kernels::QuantizePart>& parts,
                                    bool accumulate);

kernels::QuantizeBlocksArgs quantize_blocks_args(const Operands& b,
                                                 const std::vector<kernels::QuantizePart>& parts,
                                                 bool accumulate);

// quantize_args for ops that quantise their own result (graph/ops/quantize_fused.cc), a matrix of these rows
// and columns: their results of quantize begin at `first`. The caller adds the part.
kernels::QuantizeArgs fused_quantize_args(const Operands& b, size_t first, int64_t rows, int64_t columns,
                                          bool accumulate);
// Transposed E4M3 codes of such a matrix with the scale that an attribute names.
kernels::QuantizeArgs transposed_codes_args(const Operands& b, size_t result, const char* scale, int64_t rows,
                                            int64_t columns);

// The linear layers on codes, scaled_linear and block_linear with their gradients: one GEMM, or one for each
// of the packed weights whose gradients are not contiguous.
std::vector<kernels::ScaledGemmArgs> scaled_gemms(const Operands& b, bool accumulate);

// History, its length, largest numbers, initial scales.
struct ScalesOperands {
  const double* history;
  int64_t length;
  const std::vector<double>&largest, &initial;
};
ScalesOperands scales_operands(const Operands& b);

// Magnitudes and the rows of the history that they belong to; the entry that they replace.
struct AmaxOperands {
  const double* amax;
  const std::vector<int64_t>& rows;
  const double *ok, *update_count;
  int64_t length, num_rows;
  double* history;
};
AmaxOperands amax_operands(const Operands& b);
// The entry of a row that update number `count` (from 1) writes.
inline int64_t history_slot(double count, int64_t length) {
  return (static_cast<int64_t>(count) + length - 1) % length;
}

}  // namespace quintet::exec
