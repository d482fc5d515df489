// Factors of blocks in the order that cuBLASLt reads: for 1 x 128 blocks, those of one block for all rows of
// the operand; for 128 x 128 blocks, rows of factors that begin at multiples of four. Those of a part of the
// rows, and rows of another length, are copied to scratch.
#pragma once

#include "kernels/quantize_args.h"

namespace quintet::kernels::cuda {

inline int64_t padded_factors(int64_t blocks) { return (blocks + 3) / 4 * 4; }

// Scratch for the copies, each aligned to 256 bytes.
inline int64_t a_factor_bytes(const ScaledGemmArgs& g) { return (g.k / g.block * g.m * 4 + 255) / 256 * 256; }
inline int64_t block_factor_bytes(const ScaledGemmArgs& g) {
  const int64_t square = g.square_b ? g.n / g.block * padded_factors(g.k / g.block) * 4 : 0;
  return a_factor_bytes(g) + (square + 255) / 256 * 256;
}

}  // namespace quintet::kernels::cuda
