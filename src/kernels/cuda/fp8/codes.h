// Quantised matrices: 8-bit codes (E4M3 or E5M2) and one scale, a power of two; a code stands for value *
// scale.
//
// A code is the product rounded to nearest even and saturated: what lies past the format's largest number
// becomes that number, NaN stays NaN. Tensor cores read codes only along the contraction, so a matrix is
// stored row-major, transposed, or both.
#pragma once

#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

// Sums over everything that is quantised in a step; kernels add to them.
struct CodeMeasures {
  double* amax = nullptr;     // the largest |value|; NaN if there is one. Null: nothing is measured
  double* rounded = nullptr;  // [3]: values, those that saturated, those that were not 0 and became 0
};

// Where the codes of a matrix go: element (r, c) to rows[r * row_stride + c] and columns[c * column_stride +
// r]; null: not wanted. Addresses and strides are multiples of 16.
struct CodeTarget {
  uint8_t* rows = nullptr;
  int64_t row_stride = 0;
  uint8_t* columns = nullptr;
  int64_t column_stride = 0;
  base::DType format = base::DType::E4M3;
  const float* scale = nullptr;
  CodeMeasures measures = {};
};

}  // namespace quintet::kernels::cuda
