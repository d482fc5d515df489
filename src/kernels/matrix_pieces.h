// Where pieces of matrices are in a buffer, for the kernels of every backend.
#pragma once

#include <cstdint>

namespace quintet::kernels {

// At `at` of the buffer: elements [first, first + count), row by row, of a box that is `width` columns wide
// and begins at (row, column) of matrix `slot`.
struct MatrixPiece {
  int64_t at = 0, slot = 0, row = 0, column = 0, width = 1, first = 0, count = 0;
};

}  // namespace quintet::kernels
