#include "optim/matrix.h"

#include <algorithm>

#include "graph/op.h"

namespace quintet::optim {

Matrix matrix_of(const graph::Type& type, int each, int rows) {
  Matrix m{.each = each, .rows = rows};
  for (int d = 0; d < type.num_dims(); ++d)
    (d < each ? m.count : d < each + rows ? m.num_rows : m.num_columns) *= type.size(d);
  return std::min(m.num_rows, m.num_columns) > 1 ? m : Matrix{};
}

Matrix linear_matrix(const graph::Graph& model, const graph::Param& p) {
  int each = 0, rows = 0;
  const graph::Type& type = model.type(p.value);
  for (const graph::Node& node : model.nodes()) {
    if (std::find(node.inputs.begin(), node.inputs.end(), p.value) == node.inputs.end()) continue;
    if (node.op == &graph::kLinear) {
      each = 0;
      rows = type.num_dims() - (model.type(node.inputs[0]).num_dims() - 1);
    } else if (node.op == &graph::kGroupedLinear) {
      each = rows = 1;
    } else if (node.op != &graph::kLinearDx && node.op != &graph::kGroupedLinearDx) {
      return {};
    }
  }
  return rows == 0 ? Matrix{} : matrix_of(type, each, rows);
}

}  // namespace quintet::optim
