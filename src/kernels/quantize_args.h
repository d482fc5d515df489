// Arguments of quantisation and of GEMMs on quantised operands, on every backend.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace quintet::kernels {

// Matrices of equally many columns whose rows follow one another in the codes.
struct QuantizePart {
  const void* x = nullptr;
  int64_t rows = 0;
};

// Codes of x * scale in `format`; null: not wanted. Codes have one byte for bf16 x, else x's type
// (graph/fp8_ops.h).
struct QuantizeArgs {
  std::span<const QuantizePart> parts;
  int64_t rows = 0, columns = 0;  // of all parts together
  base::DType type = base::DType::BF16, format = base::DType::E4M3;
  const void* scale = nullptr;  // f32, or f64 for f64 x
  void* codes = nullptr;        // rows x columns
  void* transposed = nullptr;   // columns x rows
  // The largest magnitude; counts of values, of saturated ones and of those that became 0. Both or none.
  double* amax = nullptr;
  double* rounded = nullptr;
  bool accumulate = false;  // amax and rounded: combined with what they hold
  int64_t padding = 0;      // elements, all 0, that are not counted as values
};

// Codes of x with a scale for each block of `block` neighbours (graph/ops/quantize_blocks.cc), and the
// factors that decode them, of the arithmetic of x. Null: not wanted, codes and factors together.
struct QuantizeBlocksArgs {
  std::span<const QuantizePart> parts;
  int64_t rows = 0, columns = 0;  // of all parts together
  base::DType type = base::DType::BF16, format = base::DType::E4M3;
  int64_t block = 0;
  bool square = false;
  void* codes = nullptr;               // rows x columns
  void* factors = nullptr;             // columns / block x rows; square: rows / block x columns / block
  void* transposed = nullptr;          // columns x rows
  void* transposed_factors = nullptr;  // rows / block x columns; square: columns / block x rows / block
  double* rounded = nullptr;
  bool accumulate = false;  // rounded: added to what it holds
  int64_t padding = 0;      // elements, all 0, that are not counted as values
};

// The exponent of a block's scale: that of the largest power of two that keeps its largest magnitude, finite
// and above 0, at most `largest`. Scale and reciprocal are normal numbers of f32 as well.
inline int block_scale_exponent(double amax, double largest) {
  int of_amax = 0, of_largest = 0;
  const double a = std::frexp(amax, &of_amax), l = std::frexp(largest, &of_largest);
  return std::clamp(of_largest - of_amax - (a > l ? 1 : 0), -126, 126);
}

// C[m, n] = sum over k of A[m, k] B[n, k], times *a_factor x *b_factor: the reciprocals of powers of two. A
// and B are codes, stored along k without gaps; C has rows of n elements.
//
// With `block`, factors are those of blocks: for an element (m, k) of A, a_factor[k / block * a_stride + m];
// for (n, k) of B, b_factor[k / block * n's number + n] or, with `square_b`, b_factor[n / block * (blocks of
// k) + k / block].
struct ScaledGemmArgs {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  base::DType a_type = base::DType::E4M3, b_type = base::DType::E4M3, c_type = base::DType::BF16;
  const void* a_factor = nullptr;  // f32, or f64 for f64 codes
  const void* b_factor = nullptr;
  bool accumulate = false;
  const void* addend = nullptr;  // as in GemmArgs
  bool fast = false;             // GPUs may sum with fewer bits than f32
  int64_t block = 0;
  int64_t a_stride = 0;
  bool square_b = false;
};

}  // namespace quintet::kernels
