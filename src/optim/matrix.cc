#include "optim/matrix.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "graph/op.h"

namespace quintet::optim {

Matrix matrix_of(const graph::Type& type, int each, int rows) {
  Matrix m{.each = each, .rows = rows};
  for (int d = 0; d < type.num_dims(); ++d)
    (d < each ? m.count : d < each + rows ? m.num_rows : m.num_columns) *= type.size(d);
  return std::min(m.num_rows, m.num_columns) > 1 ? m : Matrix{};
}

namespace {

// The second operand of a linear layer: a dim of its first operand too is contracted, hence a column; one of
// that and of the result counts matrices; one of the result alone is a row. None for any other op.
Matrix read_by(const graph::Graph& model, const graph::Node& node, graph::ValueId value) {
  const bool linear =
      node.op->op_class == graph::OpClass::Matmul || node.op->op_class == graph::OpClass::ExpertMatmul;
  if (!linear || node.inputs[1] != value) return {};
  int each = 0, rows = 0;
  for (const graph::OpDim& dim :
       node.op->dims(graph::input_types(model, node), graph::output_types(model, node), node.attrs)) {
    if (dim.in[1] == graph::kAbsent || dim.out[0] == graph::kAbsent) continue;
    (dim.in[0] == graph::kAbsent ? rows : each) += 1;
  }
  return matrix_of(model.type(value), each, rows);
}

// Nothing where the forward pass does not read the value.
std::optional<Matrix> read_in_forward(const graph::Graph& model, graph::ValueId value) {
  std::optional<Matrix> matrix;
  for (const graph::Node& node : model.nodes()) {
    const bool reads = std::find(node.inputs.begin(), node.inputs.end(), value) != node.inputs.end();
    if (!reads || node.op->pass != graph::OpPass::Forward) continue;
    std::optional<Matrix> here;
    if (node.op->op_class == graph::OpClass::Quantize) {
      for (graph::ValueId codes : node.outputs)
        if (!here && model.type(codes).dims == model.type(value).dims) here = read_in_forward(model, codes);
      if (!here) continue;  // only the backward pass reads the codes
    } else {
      here = read_by(model, node, value);
    }
    if (matrix && *matrix != *here) return Matrix{};
    matrix = here;
  }
  return matrix;
}

}  // namespace

Matrix linear_matrix(const graph::Graph& model, const graph::Param& p) {
  return read_in_forward(model, p.value).value_or(Matrix{});
}

}  // namespace quintet::optim
