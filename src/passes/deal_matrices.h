// Owners of matrices: an optimizer that needs whole matrices (Muon) has each of them gathered on one of the
// ranks that hold pieces of it. This pass splits a stage's matrices into windows of consecutive blocks and
// assigns each window's matrices to ranks round-robin by shape, so that all ranks run one program with
// equal work.
#pragma once

#include "layout/flat_step.h"

namespace quintet::passes {

// A parameter of matrices: the first `each` dims count them, the next `rows` dims are rows, the others
// columns.
struct MatrixParam {
  int group = 0;
  const layout::Segment* segment = nullptr;
  int each = 0, rows = 0;
  double scale = 1;
  int64_t rates = 0;
};

// `params` in the order of the groups. A window ends when it has a matrix of each of its shapes for every
// rank. Ranks that divide a matrix share it, and without ZeRO the data ranks, which hold copies; parameters
// that different ranks share are in windows of their own, as are those that several pipeline ranks update.
// `dtype` is that of Newton-Schulz.
std::vector<layout::MatrixWindow> deal_matrices(const std::vector<MatrixParam>& params,
                                                const std::vector<layout::Group>& groups,
                                                const layout::Mesh& mesh, graph::DType dtype);

}  // namespace quintet::passes
