// Arguments of quantisation and of GEMMs on quantised operands, on every backend.
#pragma once

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

// C[m, n] = sum over k of A[m, k] B[n, k], times *a_factor x *b_factor: the reciprocals of powers of two. A
// and B are codes, stored along k without gaps; C has rows of n elements.
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
};

}  // namespace quintet::kernels
