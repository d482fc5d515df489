// Ranges of elements of matrices whose second moment is factored by rows and columns (Adafactor).
#pragma once

#include <cstdint>

#include "kernels/update_ranges.h"

namespace quintet::kernels {

// Which elements of a parameter a range has, and where the factors of its rows and columns are. A vector has
// no rows: `column` has a number for each of its elements.
struct FactoredRange {
  int64_t count = 0;
  Origin origin;                             // without random numbers
  int64_t rows = 0, columns = 0;             // of a matrix of the parameter
  int64_t elements = 0;                      // of the whole parameter: what is past them is padding
  double *row = nullptr, *column = nullptr;  // of the first matrix; those of the others follow
  double* size = nullptr;                    // per matrix
  double* norms = nullptr;                   // two per matrix
  double lr_factor = 1, weight_decay = 0;

  // A range is cells of `width` elements in one row of a matrix, of which the first and the last may be cut.
  int64_t width() const { return origin.run < columns ? origin.run : columns; }
  int64_t first_cell() const { return origin.first / width(); }
  int64_t cells() const { return count == 0 ? 0 : (origin.first + count - 1) / width() - first_cell() + 1; }
};

// Part of a cell: elements of the range from `first` on are those of a row from `at` on, in the parameter.
struct Cell {
  int64_t first = 0, count = 0;
  int64_t at = 0;
  int64_t row = 0, column = 0;  // where the factors of its first element are
  int64_t matrix = 0;
};
#ifdef __CUDACC__
__host__ __device__
#endif
    inline Cell
    cell_of(const FactoredRange& r, int64_t index) {
  const int64_t width = r.origin.run < r.columns ? r.origin.run : r.columns;
  const int64_t begin = (r.origin.first / width + index) * width;  // in the rank's part of the parameter
  const int64_t from = begin > r.origin.first ? begin : r.origin.first;
  const int64_t end = r.origin.first + r.count, to = begin + width < end ? begin + width : end;
  Cell c;
  c.first = from - r.origin.first;
  c.at = r.origin.base + from / r.origin.run * r.origin.stride + from % r.origin.run;
  c.count = to - from < r.elements - c.at ? to - from : r.elements - c.at;
  if (c.count < 0) c.count = 0;
  c.matrix = r.rows > 0 ? c.at / (r.rows * r.columns) : 0;
  c.row = c.at / r.columns;
  c.column = c.matrix * r.columns + c.at % r.columns;
  return c;
}

// The settings of Adafactor (graph/ops/adafactor.cc).
struct AdafactorScalars {
  const double* lr = nullptr;
  const double* clip_scale = nullptr;
  const double* ok = nullptr;
  const double* step = nullptr;         // number of this update, counted from 1
  const double* decay_ratio = nullptr;  // factor on weight decay; null: 1
  double decay = 0.8, eps1 = 0, eps2 = 0, clip = 1;
  bool relative = false;
};

// A parameter's averages and sums, as in graph::FactoredParam.
struct FactoredShape {
  int64_t first, each, rows, columns, matrix;
};

}  // namespace quintet::kernels
