// Parameters as matrices, for optimizers that need rows and columns.
#pragma once

#include "graph/graph.h"

namespace quintet::optim {

// The first `each` dims count matrices, the next `rows` dims are rows, the others columns. Without rows it is
// no matrix.
struct Matrix {
  int each = 0, rows = 0;
  int64_t count = 1, num_rows = 1, num_columns = 1;  // sizes
  bool operator==(const Matrix&) const = default;
};

// The matrix as which linear layers read a parameter, or its codes; none where any other op reads it.
Matrix linear_matrix(const graph::Graph& model, const graph::Param& p);
// The same with given dims.
Matrix matrix_of(const graph::Type& type, int each, int rows);

}  // namespace quintet::optim
